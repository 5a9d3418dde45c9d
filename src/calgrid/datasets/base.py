"""Base classes of data sets and shift families: uint8 images with integer labels, in splits or
conditions.
"""

import math
import tempfile
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, TypedDict

import numpy as np
from numpy.typing import NDArray

from calgrid.components.options import Options
from calgrid.errors import DataError

#: image values per chunk of a computation: 16 MB in 64 bits
CHUNK_VALUES = 2**21


@dataclass(frozen=True)
class ImageSplit:
    """Images and labels of one split, in a fixed order.

    Attributes
    ----------
    images : uint8 ``(N, 3, H, W)``, RGB, 0 to 255; or an array-like that slices to such arrays.
    labels : int64 ``(N,)``, classes from 0, or -1 without a label.
    rows : int64 ``(N,)``, position of each image in its source; None for generated or already
        prepared images.
    distribution : float32 ``(N, K)``, probability of each class given the image; None if unknown.

    Raises
    ------
    DataError : an array has another type, shape or length.
    """

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    rows: NDArray[np.int64] | None = None
    distribution: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != np.uint8 or self.images.ndim != 4 or self.images.shape[1] != 3:
            raise DataError(
                f"Images must be uint8 of shape (N, 3, H, W), got {self.images.dtype} "
                f"{self.images.shape}."
            )
        count = len(self.images)
        for name, values in (("labels", self.labels), ("rows", self.rows)):
            if values is None:
                continue
            if values.dtype != np.int64 or values.shape != (count,):
                raise DataError(
                    f"{name} must be int64 of shape ({count},), one for each image, got "
                    f"{values.dtype} {values.shape}."
                )
        probabilities = self.distribution
        if probabilities is None:
            return
        right_shape = probabilities.ndim == 2 and len(probabilities) == count
        if probabilities.dtype != np.float32 or not right_shape:
            raise DataError(
                f"distribution must be float32 of shape ({count}, K), one row for each image, got "
                f"{probabilities.dtype} {probabilities.shape}."
            )

    def __len__(self) -> int:
        return len(self.images)


@dataclass(frozen=True)
class ShiftCondition:
    """One shifted test set: ``split`` under the shift named ``shift`` at ``severity`` (1 =
    mildest).
    """

    shift: str
    severity: int
    split: ImageSplit


class Draw(TypedDict):
    """Rule of a draw of ``val_size`` rows: ``stratified`` by class, or ``shuffled`` regardless of
    class.
    """

    split: str
    val_size: int
    split_seed: int


class Images:
    """Common base of data sets and shift families."""

    registered: ClassVar[Options]
    #: folder for the files of :func:`scratch_array`, set by the preparation; None: in memory
    scratch: Path | None = None
    #: threads that decode images, set by the preparation
    threads = 1
    #: names of the classes of the data set of a shift family, if known, set by the preparation
    classes: tuple[str, ...] | None = None
    #: facts that :meth:`build` sets, for the manifest; they override registered ones
    facts: Options = MappingProxyType({})


class Dataset(Images):
    """Base of data sets (role ``dataset``) and of out-of-distribution sets (role ``ood``).

    Facts of data sets that are made of others: ``like``, the data set whose default
    hyper-parameters apply; ``class_groups``, number of classes of each group in the report, the
    first classes first.
    """

    #: seed of the draw of validation images, set by the preparation; None: that of the data set
    val_seed: int | None = None

    @property
    def drawn_val(self) -> Draw:
        """Rule that draws validation images from training images; see
        :func:`calgrid.datasets._splits.draw_val`.
        """
        rule: Draw = self.registered["drawn_val"]
        return rule if self.val_seed is None else {**rule, "split_seed": self.val_seed}

    @abstractmethod
    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return the splits: ``train``, ``val`` and ``test``, or ``test`` alone for an
        out-of-distribution set.

        Parameters
        ----------
        data_root : folder with the downloaded source files; unused by data sets that are part of a
            library.
        """


class ShiftFamily(Images):
    """Base of shift families (role ``shift``): further test sets tied to a data set.

    With ``some_classes=True``, only the logits of the classes that occur count: calibrators are
    fitted on the validation rows of these classes. ``sizes={"shift": n}`` are the images of all
    conditions, if they are not as many as test images each.
    """

    @abstractmethod
    def build(self, data_root: Path | None, base: Mapping[str, ImageSplit]) -> list[ShiftCondition]:
        """Return all conditions in a fixed order.

        Parameters
        ----------
        data_root : folder with the downloaded source files; unused by families that are computed.
        base : splits of the data set that the family belongs to.
        """


def scratch_array(shape: tuple[int, ...], folder: Path | None) -> NDArray[np.uint8]:
    """Return an uninitialised array; with a folder, in a temporary file on its disk."""
    if folder is None or 0 in shape:
        return np.empty(shape, dtype=np.uint8)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, dtype=np.uint8, mode="w+", shape=shape)


def chunked(images: NDArray[Any]) -> Iterator[NDArray[Any]]:
    """Yield consecutive chunks of an array ``(N, ...)`` for computations in 64 bits."""
    step = max(1, CHUNK_VALUES // max(1, math.prod(images.shape[1:])))
    for begin in range(0, len(images), step):
        yield images[begin : begin + step]


def grey_to_rgb(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Repeat grey images ``(N, H, W)`` to three equal channels ``(N, 3, H, W)``."""
    return np.repeat(grey[:, None], 3, axis=1)
