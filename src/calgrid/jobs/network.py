"""Networks of runs: images, record."""

import math
from dataclasses import replace

import torch
from torch import nn

from calgrid.backbones.base import ImageStatistics, Network
from calgrid.backbones.catalogue import check_image_size
from calgrid.components.registry import load
from calgrid.datasets import Prepared
from calgrid.storage import specs
from calgrid.storage.records import Facts
from calgrid.training import environment
from calgrid.training.data import DeviceImages, StreamedImages
from calgrid.training.protocol import Protocol, TrainingProtocol

#: maximum share of the free memory of a device for images
HELD_SHARE = 1 / 2
#: training images that a layer is given at once
READ_AT_ONCE = 1024
#: maximum bytes of images that a training on the CPU holds in memory; larger sets are read batch by
#: batch
HELD_BYTES = 8 * 10**9


def with_test_constants(prepared: Prepared, spec: specs.TestSpec, dataset: str) -> Prepared:
    """Data set of a run with the normalisation of the test images of ``dataset``."""
    constants = spec["test_normalisation"].get(dataset)
    if constants is None:
        return prepared
    return replace(prepared, mean=constants["mean"], std=constants["std"])


def check_images(key: specs.Key, protocol: Protocol, prepared: Prepared) -> None:
    """Raise ConfigError if the backbone of a run does not accept the image size of its data set."""
    crop = protocol.crop_size
    height, width = (crop, crop) if crop else prepared.splits["test"].images.shape[-2:]
    facts, where = load("backbone", key["backbone"]).registered, f"data set '{key['dataset']}'"
    check_image_size(key["backbone"], facts, height, width, where)


def training_images(
    prepared: Prepared, protocol: TrainingProtocol, device: torch.device
) -> tuple[DeviceImages, DeviceImages]:
    """Training and validation images: on the device if they take at most half of its free memory
    and are the same in each epoch, else streamed.
    """
    splits = [prepared.splits[name] for name in ("train", "val")]
    size = sum(math.prod(split.images.shape) for split in splits)
    most = environment.free_bytes(device) * HELD_SHARE
    fits = size <= (most if device.type == "cuda" else min(most, HELD_BYTES))
    held = fits and not protocol.augmentation.resized_crop
    kind = DeviceImages if held else StreamedImages
    layout = protocol.channels_last, protocol.crop_size
    train, val = (
        kind(split.images, split.labels, *prepared.normalisation, device, *layout)
        for split in splits
    )
    return train, val


def read_images(model: Network, images: DeviceImages) -> None:
    """Compute the weights of layers that depend on the training images, in place."""
    for module in model.modules():
        if isinstance(module, ImageStatistics):
            module.read(batch.images for batch in images.batches(READ_AT_ONCE))


def model_description(spec: specs.TrainSpec) -> Facts:
    """Return the description stored in the file of a model: its specification."""
    return {"fingerprint": spec["fingerprint"], "spec": dict(spec)}


def network_record(
    spec: specs.TrainSpec, model: nn.Module, seconds: float, device: torch.device
) -> Facts:
    """Return the record of a trained or published network."""
    return {
        **environment.run_record(spec, seconds, device),
        "parameters": sum(p.numel() for p in model.parameters()),
    }
