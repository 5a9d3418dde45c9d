"""RandAugment and AugMix: random operations on each image of a batch, on its device.

Random numbers are drawn on the host, so that no device waits to learn which images have the same
operation.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from torch import Tensor

from calgrid.training import operations as op
from calgrid.training import protocol

#: an operation and its amount (B,) for each image of a batch
Amounts = tuple[Callable[[Tensor, Tensor], Tensor], np.ndarray]
#: largest magnitude of RandAugment and largest severity of AugMix
LARGEST, SEVEREST = 30, 10


def augmented(
    images: Tensor, augmentation: protocol.Augmentation, rng: np.random.Generator
) -> Tensor:
    """Return images (B, C, H, W) uint8 after the operations that a protocol has, if any: uint8, or
    float32 for the mixtures of AugMix.
    """
    if augmentation.randaugment is not None:
        return rand_augment(images, augmentation.randaugment, rng)
    if augmentation.augmix is not None:
        return aug_mix(images, augmentation.augmix, rng)
    return images


def rand_augment(images: Tensor, options: protocol.RandAugment, rng: np.random.Generator) -> Tensor:
    """RandAugment of Cubuk et al. (NeurIPS 2020) as torchvision has it: ``n`` of fourteen
    operations, each with magnitude ``m`` and a random sign.

    The authors' code has others (cutout, inversion and an addition before solarisation), in which
    ``m`` has another meaning, and grey in the place of black.
    """
    count, _, height, width = images.shape
    share = options.m / LARGEST
    for _ in range(options.n):
        sign = rng.choice((-1.0, 1.0), count)
        choices: list[Amounts] = [
            (op.shear_x, sign * 0.3 * share),
            (op.shear_y, sign * 0.3 * share),
            (op.translate_x, sign * int(150 / 331 * width * share)),
            (op.translate_y, sign * int(150 / 331 * height * share)),
            (op.rotate, sign * 30 * share),
            (op.brightness, sign * 0.9 * share),
            (op.colour, sign * 0.9 * share),
            (op.contrast, sign * 0.9 * share),
            (op.sharpness, sign * 0.9 * share),
            (op.posterize, np.full(count, 8 - round(4 * share))),
            (op.solarize, np.full(count, 255 * (1 - share))),
            (op.autocontrast, sign),
            (op.equalize, sign),
        ]
        # one more: the image stays
        images = _applied(images, choices, rng.integers(len(choices) + 1, size=count))
    return images


def aug_mix(images: Tensor, options: protocol.AugMix, rng: np.random.Generator) -> Tensor:
    """AugMix of Hendrycks et al. (ICLR 2020): ``m x + (1 - m) sum_i w_i chain_i(x)``.

    Weights ``w ~ Dirichlet(alpha)`` and ``m ~ Beta(alpha, alpha)``; each chain has 1 to ``depth``
    operations of random level, those of the official code (google-research/augmix) without the ones
    that are corruptions of CIFAR-10-C (colour, contrast, brightness, sharpness). Differences: an
    image that is moved fades to black within a pixel of its border, and translations are a share of
    the side of the images, which the official code takes as 32. Its Jensen-Shannon loss of three
    versions of each image is not here; it would triple the cost.
    """
    count, _, height, width = images.shape
    weights = rng.dirichlet([options.alpha] * options.width, count)
    kept = rng.beta(options.alpha, options.alpha, count)
    mixed = _column(kept, images) * images
    for number in range(options.width):
        chain = images
        length = rng.integers(1, options.depth + 1, count)
        for done in range(options.depth):
            level = rng.uniform(0.1, options.severity, count) / SEVEREST
            sign = rng.choice((-1.0, 1.0), count)
            bilinear = [
                (op.rotate, sign * np.floor(30 * level)),
                (op.shear_x, sign * 0.3 * level),
                (op.shear_y, sign * 0.3 * level),
                (op.translate_x, sign * np.floor(width / 3 * level)),
                (op.translate_y, sign * np.floor(height / 3 * level)),
            ]
            choices: list[Amounts] = [
                *((partial(each, mode="bilinear"), amount) for each, amount in bilinear),
                (op.posterize, 4 - np.floor(4 * level)),
                (op.solarize, 256 - np.floor(256 * level)),
                (op.autocontrast, sign),
                (op.equalize, sign),
            ]
            choice = rng.integers(len(choices), size=count)
            chain = _applied(chain, choices, np.where(done < length, choice, -1))
        mixed += _column((1 - kept) * weights[:, number], images) * chain
    return mixed


def _applied(images: Tensor, choices: Sequence[Amounts], choice: np.ndarray) -> Tensor:
    """Apply to each image the operation with its number in ``choice`` (B,); others stay."""
    images = images.clone()
    for number, (operation, amount) in enumerate(choices):
        chosen = np.flatnonzero(choice == number)
        if len(chosen):
            rows = torch.from_numpy(chosen).to(images.device, non_blocking=True)
            images[rows] = operation(images[rows], _column(amount[chosen], images).squeeze(1))
    return images


def _column(values: np.ndarray, images: Tensor) -> Tensor:
    """Values (B,) as float32 (B, 1, 1, 1) on the device of images."""
    column = torch.from_numpy(values.astype(np.float32)).view(-1, 1, 1, 1)
    return column.to(images.device, non_blocking=True)
