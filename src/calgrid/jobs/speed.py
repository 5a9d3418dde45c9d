"""Speed of training on this machine, measured on random images, for estimates of costs."""

import contextlib
import io
import math
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from calgrid.datasets import ImageSplit, Prepared
from calgrid.jobs.train import build_trainer
from calgrid.storage.specs import TrainSpec
from calgrid.training import environment
from calgrid.training.interrupt import StopRequest

STEPS = 20
#: seconds after which fewer steps are measured
MOST_SECONDS = 60
VAL_IMAGES = 32


def images_per_second(
    spec: TrainSpec, image_shape: Sequence[int], n_classes: int, device: str
) -> float:
    """Training images per second of a run, of one core of a CPU or of the GPU.

    The difference of two trainings of one epoch, of one step and of up to 20 more, fewer if they
    would take more than a minute; a network whose first step takes half a minute is measured by it.
    Published weights are not loaded, and no images decoded.

    Parameters
    ----------
    spec : of a training without a first stage. image_shape : (C, H, W). device : ``cpu``, ``cuda``
        or ``auto``.
    """
    where = environment.choose_device(device)
    environment.prepare(where, 1, spec["protocol"]["deterministic"])
    # random images are not encoded
    augmentation = {**spec["protocol"]["augmentation"], "resized_crop": False}
    changes = {"epochs": 1, "pretrained": False, "augmentation": augmentation}
    short: TrainSpec = {**spec, "protocol": {**spec["protocol"], **changes}}
    batch_size: int = spec["protocol"]["batch_size"]

    def seconds(steps: int) -> float:
        size = steps * batch_size
        rng = np.random.default_rng(0)
        splits = {}
        for name, count in {"train": size, "val": VAL_IMAGES, "test": 1}.items():
            images = rng.integers(0, 256, (count, *image_shape), dtype=np.uint8)
            splits[name] = ImageSplit(images, np.arange(count) % n_classes)
        half = (0.5, 0.5, 0.5)
        data = Prepared("random", "dataset", n_classes, half, half, splits, (), {})
        with (
            tempfile.TemporaryDirectory() as folder,
            StopRequest() as stop,
            contextlib.redirect_stderr(io.StringIO()),  # losses on random images say nothing
        ):
            trainer = build_trainer(short, data, None, where, Path(folder), math.inf)
            trainer.search_rates = ()  # their steps take as long as the others
            return trainer.run(stop).seconds

    first = seconds(1)  # slower than the next ones
    steps = min(STEPS, int(MOST_SECONDS / first))
    if steps < 2:
        return batch_size / first
    one, more = seconds(1), seconds(1 + steps)
    return steps * batch_size / (more - one)
