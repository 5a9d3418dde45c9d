"""Operations of RandAugment and AugMix on images (N, C, H, W) uint8, with an amount (N, 1, 1) for
each image.

On one image they are those of torchvision, up to rounding. What lies outside of an image is black.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

Mode = Literal["nearest", "bilinear"]


def shear_x(images: Tensor, amount: Tensor, mode: Mode = "nearest") -> Tensor:
    """Move each row to the left by ``amount`` times its distance from the top."""
    columns, rows = _centres(images)
    return _sampled(images, columns + amount * rows, rows, mode)


def shear_y(images: Tensor, amount: Tensor, mode: Mode = "nearest") -> Tensor:
    """Move each column up by ``amount`` times its distance from the left border."""
    columns, rows = _centres(images)
    return _sampled(images, columns, rows + amount * columns, mode)


def translate_x(images: Tensor, amount: Tensor, mode: Mode = "nearest") -> Tensor:
    """Move images to the right by ``amount`` pixels."""
    columns, rows = _centres(images)
    return _sampled(images, columns - amount, rows, mode)


def translate_y(images: Tensor, amount: Tensor, mode: Mode = "nearest") -> Tensor:
    """Move images down by ``amount`` pixels."""
    columns, rows = _centres(images)
    return _sampled(images, columns, rows - amount, mode)


def rotate(images: Tensor, amount: Tensor, mode: Mode = "nearest") -> Tensor:
    """Rotate images around their centre, counter-clockwise by ``amount`` degrees."""
    height, width = images.shape[-2:]
    columns, rows = _centres(images)
    x, y = columns - width / 2, rows - height / 2
    cos, sin = amount.deg2rad().cos(), amount.deg2rad().sin()
    return _sampled(images, cos * x - sin * y + width / 2, sin * x + cos * y + height / 2, mode)


def brightness(images: Tensor, amount: Tensor) -> Tensor:
    """Multiply pixels by ``1 + amount``."""
    return _blend(images, torch.zeros_like(images), amount)


def colour(images: Tensor, amount: Tensor) -> Tensor:
    """Multiply the difference from the grey image by ``1 + amount``; grey images stay."""
    if images.shape[1] != 3:
        return images
    return _blend(images, _grey(images), amount)


def contrast(images: Tensor, amount: Tensor) -> Tensor:
    """Multiply the difference from the mean of the grey image by ``1 + amount``."""
    return _blend(images, _grey(images).float().mean((1, 2, 3), keepdim=True), amount)


def sharpness(images: Tensor, amount: Tensor) -> Tensor:
    """Multiply the difference from the smoothed image by ``1 + amount``; border pixels stay.

    The smoothed image is the mean over 3x3 pixels, of which the central one has a weight of 5.
    """
    smooth = images.float()
    inner = smooth[..., 1:-1, 1:-1]
    # a convolution could be in reduced precision
    smooth[..., 1:-1, 1:-1] = ((9 * F.avg_pool2d(smooth, 3, 1) + 4 * inner) / 13).round()
    return _blend(images, smooth, amount)


def posterize(images: Tensor, amount: Tensor) -> Tensor:
    """Keep the ``amount`` highest bits of each pixel."""
    lost = 2 ** (8 - amount.unsqueeze(1).int())
    return (images.int() // lost * lost).to(torch.uint8)


def solarize(images: Tensor, amount: Tensor) -> Tensor:
    """Invert pixels that are at least ``amount``."""
    return torch.where(images >= amount.unsqueeze(1), 255 - images, images)


def autocontrast(images: Tensor, amount: Tensor | None = None) -> Tensor:
    """Stretch each channel to [0, 255]; a channel of a single value stays. There is no amount."""
    lowest = images.amin((-2, -1), keepdim=True).float()
    highest = images.amax((-2, -1), keepdim=True).float()
    stretched = (images - lowest) * (255 / (highest - lowest))
    return torch.where(highest > lowest, stretched, images).clamp(0, 255).to(torch.uint8)


def equalize(images: Tensor, amount: Tensor | None = None) -> Tensor:
    """Flatten the histogram of each channel. There is no amount."""
    pixels = images.flatten(2).int()
    ordered = pixels.sort(-1).values.contiguous()
    levels = torch.arange(256, dtype=torch.int32, device=images.device)
    # number of pixels below each level; a sum over pixels would be in no fixed order on a GPU
    below = torch.searchsorted(ordered, levels.expand(*ordered.shape[:2], 256).contiguous())
    step = below.gather(-1, ordered[..., -1:].long()) // 255
    table = ((below + step // 2) // step.clamp(min=1)).clamp(max=255)
    flat = torch.where(step > 0, table.gather(-1, pixels.long()), pixels)
    return flat.to(torch.uint8).view(images.shape)


def _centres(images: Tensor) -> tuple[Tensor, Tensor]:
    """Positions of the centres of columns (1, W) and rows (H, 1), in pixels from the corner."""
    height, width = images.shape[-2:]
    columns = torch.arange(width, device=images.device) + 0.5
    rows = torch.arange(height, device=images.device) + 0.5
    return columns.view(1, -1), rows.view(-1, 1)


def _sampled(images: Tensor, across: Tensor, down: Tensor, mode: Mode) -> Tensor:
    """Pixels of images at positions across and down, of shapes that broadcast to (N, H, W)."""
    height, width = images.shape[-2:]
    positions = torch.broadcast_tensors(2 * across / width - 1, 2 * down / height - 1)
    grid = torch.stack(positions, -1)
    return F.grid_sample(images.float(), grid, mode, align_corners=False).round().to(torch.uint8)


def _grey(images: Tensor) -> Tensor:
    """Grey images (N, 1, H, W), and images of another number of channels than 3 as they are."""
    if images.shape[1] != 3:
        return images
    red, green, blue = images.unbind(1)
    return (0.2989 * red + 0.587 * green + 0.114 * blue).to(torch.uint8).unsqueeze(1)


def _blend(images: Tensor, other: Tensor, amount: Tensor) -> Tensor:
    """Return ``other + (1 + amount) (images - other)``."""
    factor = 1 + amount.unsqueeze(1)
    return (factor * images + (1 - factor) * other).clamp(0, 255).to(torch.uint8)
