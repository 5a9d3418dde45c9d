"""Networks that are small enough to work out by hand, and the images that they are probed on."""

import numpy as np
import pytest
import torch
from torch import nn

from calgrid.datasets import ImageSplit, Prepared
from calgrid.probes.base import Subject
from calgrid.training.procedure import Procedure

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.25, 0.3)


class Linear(nn.Module):
    """Features are the normalised pixels, logits linear in them."""

    def __init__(self, weight, bias):
        super().__init__()
        classes, width = weight.shape
        self.num_features = width
        self.head = nn.Linear(width, classes)
        self.head.weight.data = torch.tensor(weight, dtype=torch.float32)
        self.head.bias.data = torch.tensor(bias, dtype=torch.float32)

    def features(self, x):
        return x.flatten(1)

    def forward(self, x):
        return self.head(self.features(x))


def images_of(images, labels, classes):
    split = ImageSplit(images, np.asarray(labels, dtype=np.int64), np.arange(len(labels)))
    return Prepared("hand", "dataset", classes, MEAN, STD, {"test": split}, (), {})


@pytest.fixture
def linear():
    """Subject of a linear network with given weight (K, 12) and bias on images of 2x2 pixels."""

    def make(weight, bias, images, labels):
        prepared = images_of(images, labels, len(weight))
        return Subject(Linear(weight, bias), Procedure(), prepared, torch.device("cpu"), run="hand")

    return make


@pytest.fixture
def case():
    """Weights (K, 12), bias, images in the middle of the pixel range, and labels."""

    def make(classes=3, count=40, seed=0):
        rng = np.random.default_rng(seed)
        weight, bias = rng.normal(size=(classes, 12)), 0.3 * rng.normal(size=classes)
        images = rng.integers(100, 156, (count, 3, 2, 2)).astype(np.uint8)
        return weight, bias, images, rng.integers(0, classes, count)

    return make


def normalised(images):
    mean, std = (np.array(each).reshape(1, 3, 1, 1) for each in (MEAN, STD))
    return ((images / 255 - mean) / std).reshape(len(images), -1)
