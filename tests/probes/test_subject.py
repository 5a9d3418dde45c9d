"""What probes are given: the predictions of every procedure, with gradients, and the layer that
ends in the logits.
"""

import numpy as np
import pytest
import torch
from tests.probes.conftest import images_of
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.errors import DataError
from calgrid.probes.base import Subject
from calgrid.procedures import build_procedure

CPU = torch.device("cpu")
PROCEDURES = ("standard", "mixup", "tst", "vtst", "maccal", "balcal")


def subject_of(procedure, **options):
    rng = np.random.default_rng(0)
    prepared = images_of(
        rng.integers(0, 256, (12, 3, 16, 16)).astype(np.uint8), rng.integers(0, 4, 12), 4
    )
    torch.manual_seed(0)
    method = build_procedure(procedure, **options)
    network = method.build_model(build_backbone("resnet8", 4), 4)
    return Subject(network, method, prepared, CPU, run="p/hand/resnet8/ce/1")


@pytest.mark.parametrize("procedure", PROCEDURES)
def test_logits_are_the_predictions_and_have_a_gradient(procedure):
    subject = subject_of(procedure)
    (batch,) = subject.images(np.arange(12)).batches(64)
    images = batch.images.clone().requires_grad_()
    logits = subject.logits(images, batch.index)
    assert logits.detach().numpy() == pytest.approx(subject.outputs.logits, abs=1e-5)
    (gradient,) = torch.autograd.grad(logits[:, 0].sum(), images)
    assert (gradient.flatten(1).abs().sum(dim=1) > 0).all()


@pytest.mark.parametrize(
    ("procedure", "width"), [("standard", 64), ("tst", 128), ("vtst", 128), ("maccal", 512)]
)
def test_last_layer_ends_in_the_logits(procedure, width):
    layer = subject_of(procedure).last_layer()
    assert layer.weight.shape == (4, width)
    assert layer.bias.shape == (4,)


def test_last_layer_of_two_heads_is_the_linear_one():
    subject = subject_of("balcal")
    assert subject.last_layer().weight.equal(subject.network.backbone.head.weight)


def test_last_layer_has_the_mask_of_its_last_epoch():
    subject = subject_of("maccal", head="linear", sparsity="fixed")
    head = subject.network.head
    mask = torch.rand(head.weight.shape, generator=torch.Generator().manual_seed(0)) < 0.5
    head.mask_weights(mask, 0.5, keep=True)
    weight = subject.last_layer().weight
    assert weight[~mask].eq(0).all()
    assert weight[mask].ne(0).all()


def test_a_network_without_a_linear_end_has_no_last_layer():
    subject = subject_of("standard")
    subject.network.head = nn.Sequential(subject.network.head, nn.Linear(4, 7))
    assert subject.last_layer() is None


def test_a_diverged_network_is_named(refuses):
    subject = subject_of("standard")
    subject.network.head.bias.data[0] = float("nan")
    said = "Run p/hand/resnet8/ce/1 has logits that are not finite", "lower the learning rate"
    with refuses(DataError, *said):
        _ = subject.outputs
