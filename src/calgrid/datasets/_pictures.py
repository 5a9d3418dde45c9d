"""Decoding of image files (JPEG, PNG, ...) to RGB pixels of one size."""

import io
from collections.abc import Iterable, Iterator
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from calgrid.errors import DataError
from calgrid.progress import Progress

#: formats allowed in Pillow; some others (such as PostScript) run external programs
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
SUFFIXES = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
#: modes that an 8-bit conversion would clip
DEEP_MODES = ("I", "F")
#: most pixels of an image, before and after scaling: the number at which Pillow warns of a bomb
MAX_PIXELS = 2**30 // 4 // 3
#: images between two steps of the progress
STEP = 512

Item = TypeVar("Item")
Interpolation = Literal["bilinear", "bicubic"]
FILTERS = {"bilinear": Image.Resampling.BILINEAR, "bicubic": Image.Resampling.BICUBIC}


def decode(
    content: bytes,
    size: int | None,
    resize: int | None,
    where: str,
    stretch: bool = False,
    interpolation: Interpolation = "bilinear",
) -> NDArray[np.uint8]:
    """Decode an image to uint8 ``(3, H, W)``; grey images get three equal channels, transparency is
    dropped.

    The image is scaled (with antialiasing) until its shorter side has ``resize`` pixels (``size``
    if None) and the longer one is in proportion, rounded down, and then cropped to the central
    ``size`` x ``size`` pixels, as by ``Resize`` and ``CenterCrop`` of torchvision. With
    ``stretch``, it is scaled to ``size`` x ``size`` pixels instead, as by ``Resize((size, size))``.
    The orientation in the metadata of the file is ignored. Raises DataError: the content is not an
    image, is truncated, has more than 8 bits per channel, or more than ``MAX_PIXELS`` pixels before
    or after scaling.

    Parameters
    ----------
    content : bytes of an image file. size : pixels of a side; None keeps the size of the image.
    resize, stretch, interpolation : how it is scaled, see above.
    where : name of the image in messages.
    """
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:  # Pillow itself would only warn
            raise ValueError(f"{picture.width} x {picture.height} pixels are too many")
        picture.load()
    except UnidentifiedImageError:
        raise DataError(
            f"{where} is not an image ({', '.join(FORMATS)} can be read): replace or remove it."
        ) from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        Image.DecompressionBombError,
        Warning,
    ) as error:
        raise DataError(f"{where} cannot be decoded ({error}): replace or remove it.") from None
    if picture.mode.split(";")[0] in DEEP_MODES:
        raise DataError(
            f"{where} has more than 8 bits per channel (mode {picture.mode}): convert it to 8 bits."
        )
    rgb = picture.convert("RGB")
    if size is not None and stretch:
        rgb = rgb.resize((size, size), FILTERS[interpolation])
    elif size is not None:
        rgb = _scaled(rgb, resize or size, where, interpolation)
        left = round((rgb.width - size) / 2.0)
        top = round((rgb.height - size) / 2.0)
        rgb = rgb.crop((left, top, left + size, top + size))
    return np.asarray(rgb).transpose(2, 0, 1)


def _scaled(
    picture: Image.Image, shorter: int, where: str, interpolation: Interpolation
) -> Image.Image:
    """Scale an image in proportion until its shorter side has ``shorter`` pixels."""
    before = min(picture.size)
    if before == shorter:
        return picture
    width = max(shorter, int(picture.width * shorter / before))
    height = max(shorter, int(picture.height * shorter / before))
    if width * height > MAX_PIXELS:
        raise DataError(
            f"{where} has {picture.width} x {picture.height} pixels, which would be scaled to "
            f"{width} x {height}: crop it, or choose a smaller size."
        )
    return picture.resize((width, height), FILTERS[interpolation])


def counted(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Yield ``total`` items and show the progress of decoding."""
    with Progress(f"decode {title}", -(-total // STEP), f"{STEP} images") as progress:
        for number, item in enumerate(items, 1):
            yield item
            if number % STEP == 0 or number == total:
                progress.advance()
