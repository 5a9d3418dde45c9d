"""Corruptions of small images, after Hendrycks and Dietterich (ICLR 2019).

Each function maps images ``(N, ..., H, W)`` in [0, 1], one strength and a generator to images of the same shape, not
clipped to [0, 1]. Names and methods are those of CIFAR-10-C; the caller sets strengths, which depend on the image size.
"""

import io
import zlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy import ndimage

from calgrid.datasets.base import ImageSplit, ShiftSetting, grey_to_rgb
from calgrid.errors import ConfigError, unknown_id

Images = NDArray[np.float64]
Corruption = Callable[[Images, float, np.random.Generator], Images]


def gaussian_noise(images: Images, scale: float, rng: np.random.Generator) -> Images:
    """Add normal noise of standard deviation ``scale`` to each pixel."""
    return images + scale * rng.standard_normal(images.shape)


def shot_noise(images: Images, photons: float, rng: np.random.Generator) -> Images:
    """Poisson noise with a mean of ``photons`` counts at white."""
    return rng.poisson(images * photons) / photons


def impulse_noise(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Set a fraction ``share`` of the values to 0 or 1 with equal probability (salt and pepper)."""
    draw = rng.random(images.shape)
    return np.where(draw < share, np.where(draw < share / 2, 0.0, 1.0), images)


def gaussian_blur(images: Images, sigma: float, rng: np.random.Generator) -> Images:
    """Convolve with a Gaussian of standard deviation ``sigma`` pixels; borders are extended."""
    return ndimage.gaussian_filter(images, sigma=sigma, axes=(-2, -1), mode="nearest")


def brightness(images: Images, amount: float, rng: np.random.Generator) -> Images:
    """Add ``amount`` to every value; values above 1 are clipped later."""
    return images + amount


def contrast(images: Images, factor: float, rng: np.random.Generator) -> Images:
    """Multiply the distance of each value to the mean of its image and channel by ``factor``."""
    mean = images.mean(axis=(-2, -1), keepdims=True)
    return (images - mean) * factor + mean


def elastic_transform(images: Images, strength: float, rng: np.random.Generator) -> Images:
    """Displace each pixel by a smooth random field of ``strength`` pixels (root mean square per axis)."""
    n, *channels, height, width = images.shape
    noise = ndimage.gaussian_filter(rng.standard_normal((2, n, height, width)), sigma=(0, 0, 1.5, 1.5), mode="reflect")
    field = strength * noise / noise.std()
    number, row, column = np.meshgrid(np.arange(n), np.arange(height), np.arange(width), indexing="ij")
    where = np.stack([number, row + field[0], column + field[1]])
    planes = np.moveaxis(images.reshape(n, -1, height, width), 1, 0)
    moved = [ndimage.map_coordinates(plane, where, order=1, mode="nearest") for plane in planes]
    return np.stack(moved, axis=1).reshape(n, *channels, height, width)


def pixelate(images: Images, factor: float, rng: np.random.Generator) -> Images:
    """Downsample each image to ``factor`` of its side by averaging, and upsample it by repeating pixels."""
    height, width = images.shape[-2:]
    small = (round(width * factor), round(height * factor))

    def coarse(picture: Image.Image) -> Image.Image:
        return picture.resize(small, Image.Resampling.BOX).resize((width, height), Image.Resampling.NEAREST)

    return _each_picture(images, coarse)


def jpeg_compression(images: Images, quality: float, rng: np.random.Generator) -> Images:
    """Compress each image as a JPEG of ``quality``, 1 to 95."""

    def compressed(picture: Image.Image) -> Image.Image:
        picture.save(buffer := io.BytesIO(), "JPEG", quality=int(quality))
        return Image.open(buffer)

    return _each_picture(images, compressed)


def _each_picture(images: Images, change: Callable[[Image.Image], Image.Image]) -> Images:
    """Apply a function to colour images ``(N, 3, H, W)`` or grey ones ``(N, H, W)``, one by one, in 8 bits."""
    last = np.rint(255 * images).astype(np.uint8)
    last = np.moveaxis(last, 1, -1) if images.ndim == 4 else last
    changed = np.stack([np.asarray(change(Image.fromarray(picture))) for picture in last]) / 255.0
    return np.moveaxis(changed, -1, 1) if images.ndim == 4 else changed


CORRUPTIONS: Mapping[str, Corruption] = {
    function.__name__: function
    for function in (
        gaussian_noise,
        shot_noise,
        impulse_noise,
        gaussian_blur,
        brightness,
        contrast,
        elastic_transform,
        pixelate,
        jpeg_compression,
    )
}


def corrupt(images: NDArray[np.uint8], name: str, severity: int, strength: float) -> NDArray[np.uint8]:
    """Corrupt images deterministically.

    Returns uint8 of the same shape, rounded and clipped to 0..255. Raises ConfigError: unknown ``name`` or ``severity``
    below 1.

    Parameters
    ----------
    images : uint8 ``(N, H, W)`` or ``(N, 3, H, W)``.
    name : corruption, a key of ``CORRUPTIONS``.
    severity : from 1; name and severity seed the noise, so settings are independent.
    strength : argument of the corruption at this severity.
    """
    if name not in CORRUPTIONS:
        raise unknown_id("corruption", name, CORRUPTIONS)
    if severity < 1:
        raise ConfigError(f"Severity of '{name}' must be at least 1, got {severity}.")
    rng = np.random.default_rng([zlib.crc32(name.encode()), severity])
    shifted = CORRUPTIONS[name](images / 255.0, strength, rng)
    return np.rint(255.0 * np.clip(shifted, 0.0, 1.0)).astype(np.uint8)


def corrupted_settings(
    images: NDArray[np.uint8], labels: NDArray[np.int64], strengths: Mapping[str, Sequence[float]]
) -> list[ShiftSetting]:
    """Corrupt images at severities 1, 2, ...: corruption by corruption, severities ascending.

    Parameters
    ----------
    images : as in :func:`corrupt`; grey images become three equal channels.
    labels : int64 ``(N,)``.
    strengths : corruption -> its strength at each severity.
    """
    settings = []
    for name, steps in strengths.items():
        for severity, strength in enumerate(steps, start=1):
            changed = corrupt(images, name, severity, strength)
            split = ImageSplit(grey_to_rgb(changed) if changed.ndim == 3 else changed, labels)
            settings.append(ShiftSetting(name, severity, split))
    return settings
