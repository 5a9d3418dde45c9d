"""Encoded images (JPEG, PNG, ...): decoded to RGB pixels, at once or when they are read.

As arrays, ImageNet-C would take 114 GB, although a network reads each image only once. A large
split is therefore stored as one file with the concatenated image files, and an array of their
offsets.
"""

import io
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from calgrid.errors import DataError
from calgrid.parallel import in_threads
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
#: a prepared split with more bytes as an array stays encoded, if that is smaller
ENCODED_ABOVE = 4 * 10**9

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


@dataclass(frozen=True)
class Scaling:
    """How images are scaled and cropped, see :func:`decode`."""

    size: int | None
    resize: int | None
    interpolation: Interpolation = "bilinear"


@dataclass(frozen=True)
class Encoded:
    """Encoded images.

    Attributes
    ----------
    read, name : return the bytes of a row, and its name in messages.
    n_bytes : bytes of all images.
    """

    read: Callable[[int], bytes]
    name: Callable[[int], str]
    n_bytes: int

    @classmethod
    def concatenated(
        cls,
        content: NDArray[np.uint8],
        offsets: NDArray[np.int64],
        name: Callable[[int], str],
    ) -> "Encoded":
        """Images from concatenated bytes: row i is ``offsets[i]`` to ``offsets[i + 1]``."""

        def read(row: int) -> bytes:
            return content[offsets[row] : offsets[row + 1]].tobytes()

        return cls(read, name, int(offsets[-1]))


class EncodedImages:
    """Array-like of images uint8 ``(N, 3, H, W)`` that are decoded on access.

    Parameters
    ----------
    source : the images.
    shape : shape of the array.
    scaling : how each image is scaled and cropped.
    threads : number of decoding threads; the pixels do not depend on it.
    kept : whether they also stay encoded if they are few.
    """

    dtype, ndim = np.dtype(np.uint8), 4

    def __init__(
        self,
        source: Encoded,
        shape: tuple[int, ...],
        scaling: Scaling,
        threads: int = 1,
        kept: bool = False,
    ) -> None:
        self.source, self.shape, self.scaling = source, shape, scaling
        self._threads, self.kept = threads, kept

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: int | slice | NDArray[np.integer]) -> NDArray[np.uint8]:
        """Decode the images of a slice, those at some rows ``(n,)``, or one."""
        chosen = np.arange(len(self))[rows]
        if not chosen.ndim:
            return self._decode(int(chosen))
        return self._each(self._decode, chosen)

    def random_parts(self, rows: NDArray[np.integer], seed: int) -> NDArray[np.uint8]:
        """Decode random parts of the images at some rows ``(n,)``, scaled to their shape.

        See :func:`decode_part`. A part depends on ``seed`` and its row.
        """

        def part(row: int) -> NDArray[np.uint8]:
            return decode_part(
                self.source.read(row),
                (self.shape[2], self.shape[3]),
                self.source.name(row),
                np.random.default_rng((seed, row)),
                self.scaling.interpolation,
            )

        return self._each(part, rows)

    def _each(
        self, read: Callable[[int], NDArray[np.uint8]], rows: NDArray[np.integer]
    ) -> NDArray[np.uint8]:
        images = np.empty((len(rows), *self.shape[1:]), np.uint8)
        for position, picture in enumerate(in_threads(read, rows.tolist(), self._threads)):
            images[position] = picture
        return images

    def __array__(self, dtype: object = None, copy: bool | None = None) -> NDArray[np.uint8]:
        return self[:]

    def _decode(self, row: int) -> NDArray[np.uint8]:
        where = self.source.name(row)
        scaling = self.scaling
        picture = decode(
            self.source.read(row),
            scaling.size,
            scaling.resize,
            where,
            interpolation=scaling.interpolation,
        )
        if picture.shape != self.shape[1:]:
            height, width = picture.shape[1:]
            raise DataError(
                f"{where} has {height}x{width} pixels, other images have "
                f"{self.shape[2]}x{self.shape[3]}; give image_size."
            )
        return picture


def is_large(shape: Sequence[int]) -> bool:
    """Whether an array of images of this shape is too large for the disk: they stay encoded."""
    return math.prod(shape) > ENCODED_ABOVE


def stays_encoded(parts: Sequence[Any]) -> bool:
    """Whether images of one file stay encoded: they are encoded, and to be kept so, or large and
    not smaller as an array.
    """
    if not all(isinstance(part, EncodedImages) for part in parts):
        return False
    if all(part.kept for part in parts):
        return True
    shape = (sum(map(len, parts)), *parts[0].shape[1:])
    n_bytes = sum(part.source.n_bytes for part in parts)
    return is_large(shape) and n_bytes <= math.prod(shape)


def collected(
    pictures: Iterable[tuple[str, bytes]], folder: Path | None, most: float
) -> Encoded | None:
    """Collect encoded images, given with their names in messages, in a temporary file in
    ``folder``.

    Returns None if they take more than ``most`` bytes. Without a folder, the system's temporary
    folder is used.
    """
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    offsets = [0]
    names = []
    with tempfile.TemporaryFile(dir=folder) as file:
        for name, content in pictures:
            file.write(content)
            names.append(name)
            offsets.append(offsets[-1] + len(content))
            if offsets[-1] > most:
                return None
        file.flush()
        joined = np.memmap(file, dtype=np.uint8, mode="r")
    return Encoded.concatenated(joined, np.array(offsets), names.__getitem__)
