"""Base classes of data sets and shift families: uint8 images with integer labels, in splits or
conditions, and random splits of source rows, with seeds that are equal for all runs.
"""

import math
import tempfile
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
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
#: images uint8 ``(N, 3, H, W)`` and labels int64 ``(N,)``
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


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
    """Common base of data sets and shift families.

    Facts in ``@register``, as literals:

    - ``role`` : ``dataset``, ``ood`` or ``shift``;
    - ``label`` : its name in tables; ``download`` : whether its files are downloaded;
    - ``image_shape`` : channels, height and width of its images;
    - ``n_classes``, ``mean``, ``std`` (of a channel, in [0, 1]) and ``sizes`` (split -> images).
    """

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
        """Rule that draws validation images from training images; see :func:`draw_val`."""
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

    Further facts: ``base``, the data set; ``shifts``, names of its corruptions; ``severities``.

    With ``some_classes=True``, only the logits of the classes that occur count: calibrators are
    fitted on the validation rows of these classes. ``sizes={"shift": n}`` are the images of all
    conditions, if they are not as many as test images each.
    """

    @abstractmethod
    def build(
        self, data_root: Path | None, base: Mapping[str, ImageSplit]
    ) -> Iterable[ShiftCondition]:
        """Return, or yield, all conditions in a fixed order.

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


def stratified_order(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return all rows in a random order with every prefix stratified by class, so that subsets are
    nested.

    Rows are shuffled by NumPy's legacy generator, whose stream never changes. Row number r of the
    n_k rows of a class then has the position (r + 1/2) / n_k in [0, 1], and rows are ordered by
    position: in a range of the order, a class count differs from its exact share by about one row.

    Parameters
    ----------
    labels : int64 ``(N,)``, classes from 0.
    seed : seed of the shuffle.
    """
    shuffled = np.random.RandomState(seed).permutation(len(labels))
    by_class = shuffled[np.argsort(labels[shuffled], kind="stable")]
    counts = np.bincount(labels)
    rank = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    position = (rank + 0.5) / np.repeat(counts, counts)
    return by_class[np.argsort(position, kind="stable")].astype(np.int64)


def draw_val(
    labels: NDArray[np.int64], rule: Draw, split: str = "val"
) -> dict[str, NDArray[np.int64]]:
    """Draw validation rows from training rows.

    Returns ``split`` and ``train`` -> int64 rows, ascending.

    Parameters
    ----------
    labels : int64 ``(N,)`` of the training rows.
    rule : ``split`` (``stratified`` by class, or ``shuffled`` regardless of class), ``val_size``,
        ``split_seed``.
    split : name of the split that is drawn.

    Raises
    ------
    DataError : no rows are left for training.
    """
    size = rule["val_size"]
    _check_size(size, len(labels), split)
    order = _drawing_order(labels, rule)
    return deal_rows(order, {split: size, "train": len(labels) - size})


def draw_groups(
    labels: NDArray[np.int64], groups: NDArray[Any], rule: Draw, split: str
) -> dict[str, NDArray[np.int64]]:
    """Draw rows as :func:`draw_val`, but whole groups of at most ``val_size`` rows together.

    Groups are taken in a random order, ``stratified`` by the class of their first row, if they
    still fit. So there may be fewer rows than ``val_size``.

    Parameters
    ----------
    groups : name of the group of each row, ``(N,)``.

    Raises
    ------
    DataError : no rows are left for training, or no group fits.
    """
    _, first, number = np.unique(groups, return_index=True, return_inverse=True)
    _check_size(rule["val_size"], len(labels), split)
    left, chosen = rule["val_size"], np.zeros(len(first), bool)
    sizes = np.bincount(number)
    for group in _drawing_order(labels[first], rule):
        if sizes[group] <= left:
            chosen[group] = True
            left -= sizes[group]
    if not chosen.any():
        raise DataError(
            f"{split}_size is {rule['val_size']}, but the smallest group has {sizes.min()} images; "
            "use a larger number."
        )
    drawn = chosen[number]
    return {split: np.flatnonzero(drawn), "train": np.flatnonzero(~drawn)}


def _drawing_order(labels: NDArray[np.int64], rule: Draw) -> NDArray[np.int64]:
    if rule["split"] == "stratified":
        return stratified_order(labels, rule["split_seed"])
    # NumPy's legacy shuffle, whose stream never changes
    return np.random.RandomState(rule["split_seed"]).permutation(len(labels))


def _check_size(size: int, rows: int, split: str) -> None:
    if size >= rows:
        raise DataError(
            f"{split}_size is {size}, but the training files have {rows} rows; use a smaller "
            "number."
        )


def split_published(
    train: Labelled, test: Labelled, rule: Draw, source: Path
) -> dict[str, ImageSplit]:
    """Draw ``val`` from published training images (:func:`draw_val`); rows of test images continue
    theirs.

    Raises
    ------
    DataError : ``source``, the file of the training images, has too few of them.
    """
    images, labels = train
    if len(labels) <= rule["val_size"]:
        raise DataError(f"{source} has only {len(labels)} training images; replace it.")
    drawn = draw_val(labels, rule)
    splits = {}
    for name in ("train", "val"):
        rows = drawn[name]
        splits[name] = ImageSplit(images[rows], labels[rows], rows)
    return {**splits, "test": ImageSplit(*test, len(labels) + np.arange(len(test[1])))}


def deal_rows(order: NDArray[np.int64], sizes: Mapping[str, int]) -> dict[str, NDArray[np.int64]]:
    """Cut an order of all rows into splits of exact sizes, in the order of ``sizes``.

    Returns split name -> int64 rows, ascending.

    Raises
    ------
    DataError : the sizes do not add up to the number of rows.
    """
    if sum(sizes.values()) != len(order):
        raise DataError(
            f"Split sizes {dict(sizes)} must add up to the {len(order)} rows of the source."
        )
    parts = np.split(order, np.cumsum(list(sizes.values()))[:-1])
    return {name: np.sort(part) for name, part in zip(sizes, parts, strict=True)}
