"""A data set of 40 images and a protocol of three epochs: a training in a tenth of a second."""

import numpy as np
import pytest
import torch

from calgrid.datasets import ImageSplit, Prepared
from calgrid.training.protocol import TrainingProtocol


@pytest.fixture
def prepared():
    rng = np.random.default_rng(0)

    def split(count):
        labels = rng.integers(0, 4, count)
        images = rng.integers(0, 80, (count, 3, 8, 8)).astype(np.uint8)
        images[np.arange(count), 0, labels, :] += 150  # a bright row tells the class
        return ImageSplit(images, labels.astype(np.int64), np.arange(count))

    splits = {"train": split(40), "val": split(30), "test": split(20)}
    return Prepared("tiny", "dataset", 4, (0.3,) * 3, (0.3,) * 3, splits, (), {})


@pytest.fixture
def make_spec():
    def make(
        loss="ce",
        procedure="standard",
        *,
        first_stage=None,
        loss_options=None,
        procedure_options=None,
        **changes,
    ):
        protocol = {
            "epochs": 3,
            "batch_size": 16,
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9, "weight_decay": 5e-4},
            "schedule": {"name": "step", "milestones": [2]},
            "augmentation": {"crop_padding": 1, "flip": True},
            "clip_grad_norm": 2.0,
            "checkpoints": ["best", "last"],
            **changes,
        }
        protocol = TrainingProtocol.model_validate(protocol).model_dump()
        key = {"protocol": "p", "dataset": "tiny", "backbone": "resnet8", "method": loss, "seed": 1}
        options = {"reduction": protocol["reduction"], **(loss_options or {})}
        return {
            "key": key,
            "protocol": protocol,
            "procedure": {"id": procedure, "options": procedure_options or {}},
            "loss": {"id": loss, "options": options},
            "first_stage": first_stage,
            "fingerprint": f"{loss}-{procedure}",
        }

    return make


@pytest.fixture(autouse=True)
def one_thread():
    torch.set_num_threads(1)
    torch.set_deterministic_debug_mode("error")
    yield
    torch.set_deterministic_debug_mode("default")
