"""Facts of a backbone measured on the meta device, without computation."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from calgrid.backbones.base import Backbone
from calgrid.errors import CalgridError, ConfigError

#: images per forward pass, and number of classes
IMAGES, CLASSES = 2, 10


def measure(build: Callable[[int], Backbone], image_size: int, where: str) -> dict[str, Any]:
    """Return ``parameters``, ``num_features``, ``macs``, ``activations``, ``min_size``, and
    ``max_size`` if it has one.

    Raises
    ------
    ConfigError : the network cannot be built, or does not take such images.
    """
    try:
        with torch.device("meta"):
            model = build(CLASSES)
        macs, num_features = _forward(model, image_size)
        trainable = [tensor.numel() for tensor in model.parameters() if tensor.requires_grad]
        activations = _activations(model, image_size)
        sizes = _sizes(model.eval(), image_size)
    except CalgridError:
        raise
    except Exception as error:  # of code that is not ours
        raise ConfigError(
            f"{where}: a network for {CLASSES} classes and images of {image_size}x{image_size} "
            f"pixels fails on the device 'meta' ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); correct it, or its image_size."
        ) from error
    return {
        "parameters": {CLASSES: sum(trainable)},
        "num_features": num_features,
        "macs": macs,
        "activations": activations,
        **sizes,
    }


def _blank(size: int) -> Tensor:
    return torch.zeros(IMAGES, 3, size, size, device="meta")


def _forward(model: Backbone, size: int) -> tuple[int, int]:
    """Multiply-adds of a forward pass of one image, and the width of the features."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        features = model.eval().features(_blank(size))
        logits = model.head(features)
    if features.ndim != 2 or logits.shape != (IMAGES, CLASSES):
        shapes = f"{tuple(features.shape)} and {tuple(logits.shape)}"
        raise ValueError(
            f"features and logits must be ({IMAGES}, d) and ({IMAGES}, {CLASSES}), got {shapes}"
        )
    return max(1, counter.get_total_flops() // (2 * IMAGES)), features.shape[1]


def _activations(model: Backbone, size: int) -> int:
    """Number of values that the forward pass of one image stores for the backward pass, without
    weights.
    """
    weights = {
        tensor.untyped_storage()._cdata for tensor in (*model.parameters(), *model.buffers())
    }
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage()._cdata] = tensor
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        model.train()(_blank(size))
    n_bytes = 0
    for storage, tensor in saved.items():
        if storage not in weights:
            n_bytes += tensor.untyped_storage().nbytes()
    return max(1, n_bytes // (4 * IMAGES))


def _sizes(model: Backbone, image_size: int) -> dict[str, int]:
    """Smallest supported side of images, and the largest if only one size is supported."""

    def takes(size: int) -> bool:
        try:
            with torch.no_grad():
                model(_blank(size))
        except Exception:  # layers may raise any error
            return False
        return True

    low, high = 1, image_size
    while low < high:
        middle = (low + high) // 2
        if takes(middle):
            high = middle
        else:
            low = middle + 1
    if high == image_size and not takes(2 * image_size):
        return {"min_size": high, "max_size": image_size}
    return {"min_size": high}
