"""Decoding of image files (JPEG, PNG, ...) to RGB pixels of one size."""

import io
import math
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
#: share of the area and ratio of width to height of random parts, and draws of one that fits
PART_AREA, PART_RATIO, PART_DRAWS = (0.08, 1.0), (3 / 4, 4 / 3), 10
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
    The orientation in the metadata of the file is ignored.

    Parameters
    ----------
    content : bytes of an image file. size : pixels of a side; None keeps the size of the image.
    resize, stretch, interpolation : how it is scaled, see above.
    where : name of the image in messages.

    Raises
    ------
    DataError : the content is not an image, is truncated, has more than 8 bits per channel, or more
        than ``MAX_PIXELS`` pixels before or after scaling.
    """
    rgb = _opened(content, where)
    if size is not None and stretch:
        rgb = rgb.resize((size, size), FILTERS[interpolation])
    elif size is not None:
        shorter, before = resize or size, min(rgb.size)
        width = max(shorter, int(rgb.width * shorter / before))
        height = max(shorter, int(rgb.height * shorter / before))
        if width * height > MAX_PIXELS:
            raise DataError(
                f"{where} has {rgb.width} x {rgb.height} pixels, which would be scaled to "
                f"{width} x {height}; crop it, or choose a smaller size."
            )
        rgb = rgb.resize((width, height), FILTERS[interpolation])
        left = round((width - size) / 2.0)
        top = round((height - size) / 2.0)
        rgb = rgb.crop((left, top, left + size, top + size))
    return np.asarray(rgb).transpose(2, 0, 1)


def decode_part(
    content: bytes,
    shape: tuple[int, int],
    where: str,
    rng: np.random.Generator,
    interpolation: Interpolation = "bilinear",
) -> NDArray[np.uint8]:
    """Decode an image, and scale a random part of it (:func:`random_part`) to uint8 ``(3, H, W)``.

    As ``RandomResizedCrop`` of torchvision. Errors are those of :func:`decode`.

    Parameters
    ----------
    content : bytes of an image file. shape : height and width of the result.
    where : name of the image in messages.
    """
    rgb = _opened(content, where)
    part = rgb.crop(random_part(rgb.width, rgb.height, rng))
    return np.asarray(part.resize(shape[::-1], FILTERS[interpolation])).transpose(2, 0, 1)


def random_part(width: int, height: int, rng: np.random.Generator) -> tuple[int, int, int, int]:
    """Draw a part of an image: left, top, right (exclusive) and bottom (exclusive) pixel.

    It has 8 to 100 % of the area, and a ratio of width to height of 3/4 to 4/3, uniform in its
    logarithm (Szegedy et al., Going Deeper with Convolutions, CVPR 2015, section 6). As in
    torchvision, the largest central part of such a ratio if ten draws do not fit.
    """
    (smallest, largest), (narrowest, widest) = PART_AREA, PART_RATIO
    for _ in range(PART_DRAWS):
        area = width * height * rng.uniform(smallest, largest)
        ratio = math.exp(rng.uniform(math.log(narrowest), math.log(widest)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            top = int(rng.integers(height - down + 1))
            left = int(rng.integers(width - across + 1))
            return left, top, left + across, top + down
    across = min(width, round(height * widest))
    down = min(height, round(width / narrowest))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _opened(content: bytes, where: str) -> Image.Image:
    """Decode an image to RGB; see :func:`decode`."""
    try:
        picture = Image.open(io.BytesIO(content), formats=FORMATS)
        if picture.width * picture.height > MAX_PIXELS:  # Pillow itself would only warn
            raise ValueError(f"{picture.width} x {picture.height} pixels are too many")
        picture.load()
    except UnidentifiedImageError:
        raise DataError(
            f"{where} is not an image ({', '.join(FORMATS)} can be read); replace or remove it."
        ) from None
    except (
        OSError,
        SyntaxError,
        ValueError,
        EOFError,
        Image.DecompressionBombError,
        Warning,
    ) as error:
        raise DataError(f"{where} cannot be decoded ({error}); replace or remove it.") from None
    if picture.mode.split(";")[0] in DEEP_MODES:
        raise DataError(
            f"{where} has more than 8 bits per channel (mode {picture.mode}); convert it to 8 bits."
        )
    return picture.convert("RGB")


def counted(items: Iterable[Item], total: int, title: str) -> Iterator[Item]:
    """Yield ``total`` items and show the progress of decoding."""
    with Progress(f"decode {title}", -(-total // STEP), f"{STEP} images") as progress:
        for number, item in enumerate(items, 1):
            yield item
            if number % STEP == 0 or number == total:
                progress.advance()
