"""Random splits of source rows, with seeds that are equal for all runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets.base import Draw, ImageSplit
from calgrid.errors import DataError

#: images uint8 ``(N, 3, H, W)`` and labels int64 ``(N,)``
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]


def stratified_order(labels: NDArray[np.int64], seed: int) -> NDArray[np.int64]:
    """Return all rows in a random order in which every prefix is stratified by class, so that
    subsets are nested.

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
