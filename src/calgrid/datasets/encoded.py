"""Images that stay encoded on disk and are decoded when they are read.

As arrays, ImageNet-C would take 114 GB, although a network reads each image only once. A large
split is therefore stored as one file with the concatenated image files, and an array of their
offsets.
"""

import math
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets._pictures import Interpolation, decode, decode_part
from calgrid.errors import DataError
from calgrid.parallel import in_threads

#: a prepared split with more bytes as an array stays encoded, if that is smaller
ENCODED_ABOVE = 4 * 10**9


@dataclass(frozen=True)
class Scaling:
    """How images are scaled and cropped, see :func:`calgrid.datasets._pictures.decode`."""

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

        See :func:`calgrid.datasets._pictures.decode_part`. A part depends on ``seed`` and its row.
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
    """Whether an array of images of this shape is too large for the disk, so that they stay
    encoded.
    """
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
