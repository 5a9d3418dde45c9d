"""Rows of val and test of an entry of ``external``: files of logits, or a group of CalArena."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.class_names import say_unnamed
from calgrid.errors import DataError, refuse
from calgrid.logits.calarena import read_group
from calgrid.logits.reading import read_any, share_rows
from calgrid.storage.logits import Logits
from calgrid.storage.specs import EXTERNAL_READING


def read_external(
    external: Mapping[str, Any], given: Mapping[str, Path]
) -> tuple[Logits, Logits, Sequence[str] | None]:
    """Return the rows of val and test, checked, and the names of the classes, if known.

    ``external`` is that of :class:`calgrid.storage.specs.ExternalSpec`, no run of a bank; ``given``
    has the paths of its files.

    Raises
    ------
    DataError : a file is damaged, its numbers are not of the stated kind, or val and test share
        rows or differ in their classes.
    """
    if "group" in external:
        return *read_group(given["test"], external["group"]), None
    how = {name: external[name] for name in EXTERNAL_READING if name in external}
    test = read_any(given["test"], external["kind"], given.get("test_labels"), **how)
    classes = test.metadata.get("classes")
    if "val" in given:
        how |= {"classes": classes, "exact": "classes" not in external}
        val = read_any(given["val"], external["kind"], given.get("val_labels"), **how)
        n_val, n_test = (each.logits.shape[1] for each in (val, test))
        refuse(
            (
                n_val != n_test,
                f"{given['val']} has {n_val} classes, but {given['test']} has {n_test}; give files "
                "of one model.",
            ),
            (
                share_rows(val, test),
                f"{given['val']} and {given['test']} share rows: calibrators would be scored on "
                "rows used for their fit; give other rows as test, or, in a study, remove val: "
                "then a part of test (val_fraction) is taken for the fit.",
            ),
            error=DataError,
        )
        if not classes and "classes" in val.metadata:
            say_unnamed("columns", given["test"], given["val"], val.metadata["classes"])
    else:
        val, test = split_rows(test, external["split_seed"], external["val_fraction"])
    if "val_rows" in external:
        val = first_rows(val, external["val_rows"], external["val_seed"])
    return val, test, classes


def split_rows(data: Logits, seed: int, val_fraction: float) -> tuple[Logits, Logits]:
    """Split rows at random into val and test, both in their original order."""
    n_val = round(len(data) * val_fraction)
    if not 0 < n_val < len(data):
        raise DataError(
            f"{len(data)} rows cannot be split with val_fraction {val_fraction}: one part would be "
            "empty."
        )
    parts = np.split(np.random.default_rng(seed).permutation(len(data)), [n_val])
    val, test = (data.rows(np.sort(part)) for part in parts)
    return val, test


def first_rows(data: Logits, rows: int, seed: int) -> Logits:
    """Return the first rows of a random permutation, in their original order; smaller sets are
    subsets of larger.
    """
    if rows > len(data):
        raise DataError(f"val_rows {rows} is more than the {len(data)} val rows; use fewer.")
    return data.rows(np.sort(np.random.default_rng(seed).permutation(len(data))[:rows]))
