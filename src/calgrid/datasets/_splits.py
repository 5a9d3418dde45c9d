"""Random splits of source rows, with seeds that are equal for all runs."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.datasets.base import ImageSplit
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
    labels: NDArray[np.int64], rule: Mapping[str, Any], split: str = "val"
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
    size, seed = rule["val_size"], rule["split_seed"]
    if size >= len(labels):
        raise DataError(
            f"{split}_size is {size}, but the training files have {len(labels)} rows; use a "
            "smaller number."
        )
    if rule["split"] == "stratified":
        order = stratified_order(labels, seed)
    else:  # NumPy's legacy shuffle, whose stream never changes
        order = np.random.RandomState(seed).permutation(len(labels))
    return deal_rows(order, {split: size, "train": len(labels) - size})


def split_published(
    train: Labelled, test: Labelled, rule: Mapping[str, Any], source: Path
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
