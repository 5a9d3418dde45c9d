"""Data sets of users' own image files.

Splits. ``test`` and ``val`` have their own files, or ``test_size`` rows and then ``val_size`` rows
are drawn from the training rows by ``split_seed``: ``stratified`` by class (see
:func:`calgrid.datasets.base.stratified_order`), or ``shuffled``, the first rows of NumPy's
legacy shuffle, as in the CIFAR splits of focal_calibration. Images of one of the ``groups`` are
drawn together, and are in one split only. ``subset`` keeps the first rows of a
stratified order of the remaining training rows, so that subsets are nested.

Missing options are read from the source: the number of classes (the training labels must then be 0
to K - 1, each at least once), the image size (which must then be constant), and the mean and
standard deviation of each channel over the training images.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.class_names import say_unnamed
from calgrid.datasets.base import (
    Dataset,
    Draw,
    ImageSplit,
    chunked,
    draw_groups,
    draw_val,
    scratch_array,
    stratified_order,
)
from calgrid.datasets.encoded import EncodedImages, Scaling, collected, counted, decode, is_large
from calgrid.errors import DataError, row_at, visible
from calgrid.parallel import in_threads
from calgrid.storage.sources import SourceRecord

Rows = NDArray[np.int64]
#: name of an image in messages, and the bytes of its file
NamedImage = tuple[str, bytes]

#: a network needs at least two
FEWEST_CLASSES = 2
#: damaged images that one message names
MOST_DAMAGED = 20
LIMITS = {
    "test_size": "[1, inf)",
    "val_size": "[1, inf)",
    "split_seed": "[0, 4294967295]",
    "subset": "[1, inf)",
    "image_size": "[1, 4096]",
    "resize": "[1, 4096]",
    "n_classes": "[2, 1000000]",
    "mean": "(-inf, inf)",
    "std": "(0, inf)",
}


class Source(ABC):
    """Images of one split, in the order of its files and of the rows in them.

    Attributes
    ----------
    labels : int64 ``(N,)``.
    classes : names of the classes, if known.
    unnamed : files whose labels are numbers without names.
    groups : name of the group of each image, ``(N,)``, if the data set has groups.
    images : file of each image, if each has one.
    """

    labels: Rows
    classes: tuple[str, ...] | None = None
    unnamed: tuple[Path, ...] = ()
    groups: NDArray[np.str_] | None = None
    images: Sequence[Path] = ()

    def say_unnamed(self, classes: Sequence[str] | None, named: str) -> None:
        """Warn of files with labels taken in the class order of other files, if known."""
        for path in self.unnamed if classes else ():
            say_unnamed("labels", path, named, classes or ())

    @abstractmethod
    def read(self, rows: Rows) -> Iterator[NamedImage]:
        """Yield the encoded images at ascending rows."""

    @abstractmethod
    def files(self) -> Iterable[SourceRecord]:
        """Sizes and SHA-256 of the files, for the manifest."""


class ImageFiles(Dataset):
    """Base of data sets of users' own files; subclasses define :meth:`open`.

    Parameters
    ----------
    train, test, val : files or folders below data_root, one or a list each.
    test_size : number of images drawn from the training files; ``test`` must then be empty.
    val_size : number of images drawn from the training files if ``val`` has no files.
    split : draw images with the same share of each class, or shuffled.
    split_seed : seed of the draw, and of the ``subset``.
    groups : images that belong together, as of one patient: a column of the Parquet files, or a
        regular expression for the path of an image below its folder, whose part in parentheses is
        the name of the group. Groups are drawn whole, so splits may have fewer images than
        ``test_size`` and ``val_size``; one in two splits is an error.
    subset : number of training images to keep.
    image_size : pixels of a side; None if all images have the same size.
    resize : pixels of the shorter side before the central square is cut out; image_size if None.
    n_classes : number of classes; that of the training files if None.
    classes : names of the classes, in the order of the outputs of the network; that of the training
        files if None.
    mean, std : lists of three numbers, the normalisation of pixels in [0, 1]; those of the training
        images if None.
    duplicates : for images of equal content in two splits, raise an error or count them in the
        manifest.
    keep_encoded : keep the image files, also if they are few, instead of arrays of their pixels:
        protocols with ``resized_crop`` need them.
    """

    def __init__(
        self,
        *,
        train: str | list[str] = "train",
        test: str | list[str] = "test",
        val: str | list[str] | None = None,
        test_size: int | None = None,
        val_size: int | None = None,
        split: Literal["stratified", "shuffled"] = "stratified",
        split_seed: int = 1,
        groups: str | None = None,
        subset: int | None = None,
        image_size: int | None = None,
        resize: int | None = None,
        n_classes: int | None = None,
        classes: list[str] | None = None,
        mean: list[float] | None = None,
        std: list[float] | None = None,
        duplicates: Literal["refuse", "count"] = "refuse",
        keep_encoded: bool = False,
    ) -> None:
        self.paths = {"train": as_list(train), "val": as_list(val or []), "test": as_list(test)}
        self.drawn = {"test": test_size, "val": val_size}
        self.split, self.groups = split, groups
        self.split_seed, self.subset = split_seed, subset
        self.image_size, self.resize = image_size, resize
        self.n_classes, self.mean, self.std = n_classes, mean, std
        self.keep_encoded = keep_encoded
        self.classes = None if classes is None else tuple(classes)

    @abstractmethod
    def open(self, data_root: Path | None, names: Sequence[str], train: Source | None) -> Source:
        """Open the files of one split; ``train`` is the source of the training split when another
        one is opened. Classes are in the order of :meth:`known_classes`.
        """

    def known_classes(self, train: Source | None) -> tuple[str, ...] | None:
        """Names of the classes by the option, or else of the training split; None if unknown."""
        return self.classes or (None if train is None else train.classes)

    def build(self, data_root: Path | None) -> dict[str, ImageSplit]:
        """Return ``train``, ``val`` and ``test``; see :class:`Dataset`."""
        sources, training_rows = self.plan(data_root)
        splits = {}
        damaged: dict[str, DataError] = {}
        offset = 0  # rows are numbered through all files, so that rows of different files differ
        for opened, source in sources.items():
            rows = training_rows if opened == "train" else {opened: np.arange(len(source.labels))}
            for role, chosen in rows.items():
                images = self._images(role, source, chosen, damaged)
                splits[role] = ImageSplit(images, source.labels[chosen], chosen + offset)
            offset += len(source.labels)
        if damaged:
            raise _of_all(damaged)
        images, classes = splits["train"].images, sources["train"].classes
        mean, std = self.mean, self.std
        if mean is None:
            mean, std = channel_statistics(images)
        facts: dict[str, object] = {
            "n_classes": self.n_classes,
            "image_shape": images.shape[1:],
            "mean": mean,
            "std": std,
            "sources": [file for source in sources.values() for file in source.files()],
        }
        facts["images"] = [path for source in sources.values() for path in source.images]
        self.facts = facts if classes is None else {**facts, "classes": list(classes)}
        return {role: splits[role] for role in ("train", "val", "test")}

    def plan(self, data_root: Path | None) -> tuple[dict[str, Source], dict[str, Rows]]:
        """Open all sources and assign the training rows by their labels, without reading images.

        Returns role -> source, and role -> rows of the training source.

        Raises
        ------
        DataError : a source cannot be read, a label is out of range, or there are too few rows.
        """
        train = self.open(data_root, self.paths["train"], None)
        sources = {"train": train}
        for role in ("val", "test"):
            if self.paths[role]:
                sources[role] = self.open(data_root, self.paths[role], train)
        files = ", ".join(self.paths["train"])
        if train.classes and self.n_classes not in (None, len(train.classes)):
            raise DataError(
                f"{files} has images of {len(train.classes):,} classes, but n_classes is "
                f"{self.n_classes:,}; complete it, or correct n_classes."
            )
        for source in sources.values() if self.classes is None else ():
            source.say_unnamed(train.classes, files)
        self.n_classes = self.n_classes or _count_classes(train, files)
        for role, source in sources.items():
            mend = "name all classes in 'classes'" if self.classes else "give n_classes"
            _check_labels(source.labels, self.n_classes, ", ".join(self.paths[role]), mend)
        _check_groups(sources)
        rows = {"train": np.arange(len(train.labels))}
        for role, size in self.drawn.items():
            if size is not None:
                seed = self.split_seed
                if role == "val" and self.val_seed is not None:
                    seed = self.val_seed
                rule: Draw = {"split": self.split, "val_size": size, "split_seed": seed}
                left = rows["train"]
                if train.groups is None:
                    drawn = draw_val(train.labels[left], rule, role)
                else:
                    drawn = draw_groups(train.labels[left], train.groups[left], rule, role)
                for name, chosen in drawn.items():
                    rows[name] = left[chosen]
        if self.subset is not None:
            rows["train"] = self._subset(train.labels, rows["train"], self.subset)
        return sources, rows

    def _subset(self, labels: Rows, rows: Rows, count: int) -> Rows:
        if count > len(rows):
            raise DataError(
                f"subset is {count}, but {len(rows)} training rows are left; use a smaller number."
            )
        order = stratified_order(labels[rows], self.split_seed)
        return rows[np.sort(order[:count])]

    def _images(
        self, role: str, source: Source, rows: Rows, damaged: dict[str, DataError]
    ) -> NDArray[np.uint8]:
        """Return the images at ``rows``, encoded or as an array on disk; errors of single images of
        the array go to ``damaged``, by the name of the image.
        """
        if not len(rows):
            raise DataError(f"The split '{role}' has no images; correct its files or sizes.")
        shape = (len(rows), *self._shape(source, rows, damaged))
        kept = self.keep_encoded
        if kept or is_large(shape):
            most = math.inf if kept else math.prod(shape)
            encoded = collected(source.read(rows), self.scratch, most)
            if encoded is not None:
                scaling = Scaling(self.image_size, self.resize)
                images = EncodedImages(encoded, shape, scaling, self.threads, kept)
                return cast(NDArray[np.uint8], images)  # behaves like an array
        array = scratch_array(shape, self.scratch)
        pictures = in_threads(self._decode, source.read(rows), self.threads)
        for row, (where, picture) in enumerate(counted(pictures, len(rows), role)):
            if isinstance(picture, DataError):
                _add(damaged, where, picture)
            elif picture.shape != shape[1:]:
                raise DataError(
                    f"{where} has {picture.shape[1]}x{picture.shape[2]} pixels, the images before "
                    f"it have {shape[2]}x{shape[3]}; give image_size."
                )
            else:
                array[row] = picture
        return array

    def _shape(self, source: Source, rows: Rows, damaged: dict[str, DataError]) -> tuple[int, ...]:
        """Shape of the first image that can be decoded."""
        for where, picture in map(self._decode, source.read(rows)):
            if not isinstance(picture, DataError):
                return picture.shape
            _add(damaged, where, picture)
        raise _of_all(damaged)

    def _decode(self, image: NamedImage) -> tuple[str, NDArray[np.uint8] | DataError]:
        where, content = image
        try:
            return where, decode(content, self.image_size, self.resize, where)
        except DataError as error:
            return where, error


def _add(damaged: dict[str, DataError], where: str, error: DataError) -> None:
    """Collect the error of an image; raise DataError when one message has enough."""
    damaged[where] = error
    if len(damaged) == MOST_DAMAGED:
        raise _of_all(damaged)


def _of_all(damaged: Mapping[str, DataError]) -> DataError:
    """The error of one image, or one that names all images."""
    first, number = next(iter(damaged.values())), len(damaged)
    if number == 1:
        return first
    least = "At least " if number == MOST_DAMAGED else ""
    return DataError(f"{least}{number} images cannot be used ({', '.join(damaged)}): {first}")


def as_list(paths: str | list[str]) -> list[str]:
    return [paths] if isinstance(paths, str) else list(paths)


def channel_statistics(images: NDArray[np.uint8]) -> tuple[list[float], list[float]]:
    """Mean and standard deviation of each channel, of pixels in [0, 1], from exact sums; four
    decimals.

    Raises
    ------
    DataError : a channel is constant.
    """
    total = np.zeros(images.shape[1], np.int64)
    squares = np.zeros(images.shape[1], np.int64)
    for part in chunked(images):
        chunk = part.astype(np.int64)
        total += chunk.sum(axis=(0, 2, 3))
        squares += (chunk**2).sum(axis=(0, 2, 3))
    count = math.prod(images.shape) // images.shape[1]
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    if (std < 0.01).any():
        raise DataError("A channel of the training images is constant; give mean and std.")
    return _rounded(mean), _rounded(std)


def _rounded(values: NDArray[np.float64]) -> list[float]:
    return [round(float(value) / 255, 4) for value in values]


def _check_labels(labels: Rows, n_classes: int, files: str, mend: str) -> None:
    if not len(labels):
        raise DataError(f"{files} contains no images; correct the path.")
    if n_classes < FEWEST_CLASSES:
        raise DataError(
            f"{files} has images of one class only; give the images of all classes, for folders "
            "the one that holds one folder per class."
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= n_classes))
    if len(wrong):
        raise DataError(
            f"{files}: {row_at(wrong[0])} has the label {labels[wrong[0]]}, but there are "
            f"{n_classes} classes, 0..{n_classes - 1}; correct it, or {mend}."
        )


def _check_groups(sources: Mapping[str, Source]) -> None:
    """Raise DataError if a group has images in the files of two splits."""
    for (role, source), (other_role, other) in combinations(sources.items(), 2):
        if source.groups is None or other.groups is None:
            continue
        shared = np.intersect1d(source.groups, other.groups)
        if len(shared):
            raise DataError(
                f"{len(shared)} groups have images in {role} and in {other_role}, the first is "
                f"'{visible(shared[0])}'; put all images of a group into one of them."
            )


def _count_classes(train: Source, files: str) -> int:
    """Number of class names, or else of the training labels, 0 to K - 1; each class must occur."""
    if train.classes is not None:
        absent = np.setdiff1d(np.arange(len(train.classes)), train.labels)
        if len(absent):
            raise DataError(
                f"{files} has no image of the class '{visible(train.classes[absent[0]])}'; add "
                f"some, or give n_classes: {len(train.classes)}."
            )
        return len(train.classes)
    present = np.unique(train.labels[train.labels >= 0])
    missing = np.flatnonzero(present != np.arange(len(present)))
    if len(missing):
        raise DataError(
            f"{files} has images with the label {present[-1]}, but none with {missing[0]}; correct "
            "the labels, or give n_classes."
        )
    return len(present)
