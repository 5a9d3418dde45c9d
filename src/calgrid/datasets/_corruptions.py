"""Corruptions of grey images, after Hendrycks and Dietterich (ICLR 2019), for pictures of a few pixels.

Each function maps images ``(N, H, W)`` in [0, 1], one strength and a generator to images of the same shape, not yet
clipped to [0, 1]. Names and mechanisms are those of CIFAR-10-C; strengths are scaled to the size of the images, so
they are given by the caller.
"""

import zlib
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from calgrid.errors import ConfigError, unknown_id

Images = NDArray[np.float64]
Corruption = Callable[[Images, float, np.random.Generator], Images]


def gaussian_noise(images: Images, scale: float, rng: np.random.Generator) -> Images:
    """Add normal noise of standard deviation ``scale`` to each pixel."""
    return images + scale * rng.standard_normal(images.shape)


def impulse_noise(images: Images, share: float, rng: np.random.Generator) -> Images:
    """Set a ``share`` of the pixels to black or white with equal chance (salt and pepper)."""
    draw = rng.random(images.shape)
    return np.where(draw < share, np.where(draw < share / 2, 0.0, 1.0), images)


def gaussian_blur(images: Images, sigma: float, rng: np.random.Generator) -> Images:
    """Convolve with a Gaussian of standard deviation ``sigma`` pixels; borders are extended."""
    return ndimage.gaussian_filter(images, sigma=(0, sigma, sigma), mode="nearest")


def brightness(images: Images, amount: float, rng: np.random.Generator) -> Images:
    """Add ``amount`` to every pixel; what exceeds white is lost."""
    return images + amount


def contrast(images: Images, factor: float, rng: np.random.Generator) -> Images:
    """Shrink the distance of each pixel to the image's mean by ``factor``."""
    mean = images.mean(axis=(1, 2), keepdims=True)
    return (images - mean) * factor + mean


def elastic_transform(images: Images, strength: float, rng: np.random.Generator) -> Images:
    """Displace each pixel by a smooth random field of ``strength`` pixels (root mean square per axis)."""
    n, height, width = images.shape
    noise = ndimage.gaussian_filter(rng.standard_normal((2, n, height, width)), sigma=(0, 0, 1.5, 1.5), mode="reflect")
    field = strength * noise / noise.std()
    number, row, column = np.meshgrid(np.arange(n), np.arange(height), np.arange(width), indexing="ij")
    where = np.stack([number, row + field[0], column + field[1]])
    return ndimage.map_coordinates(images, where, order=1, mode="nearest")


CORRUPTIONS: Mapping[str, Corruption] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            gaussian_noise,
            impulse_noise,
            gaussian_blur,
            brightness,
            contrast,
            elastic_transform,
        )
    }
)


def corrupt(images: NDArray[np.uint8], name: str, severity: int, strength: float) -> NDArray[np.uint8]:
    """Corrupt grey images; the same arguments always give the same images.

    Parameters
    ----------
    images : uint8 ``(N, H, W)``.
    name : corruption, a key of ``CORRUPTIONS``.
    severity : from 1; with ``name`` it seeds the noise, so settings are independent of each other.
    strength : argument of the corruption at this severity.

    Returns
    -------
    uint8 ``(N, H, W)``, rounded and clipped to 0..255.

    Raises
    ------
    ConfigError : unknown ``name`` or ``severity`` below 1.
    """
    if name not in CORRUPTIONS:
        raise unknown_id("corruption", name, CORRUPTIONS)
    if severity < 1:
        raise ConfigError(f"Severity of '{name}' must be at least 1, got {severity}.")
    rng = np.random.default_rng([zlib.crc32(name.encode()), severity])
    shifted = CORRUPTIONS[name](images / 255.0, strength, rng)
    return np.rint(255.0 * np.clip(shifted, 0.0, 1.0)).astype(np.uint8)
