"""Predictions of the benchmark CalArena (arXiv 2605.30188), HDF5 files.

Each group ``dataset/model`` has ``probas_cal``, ``labels_cal`` and ``probas_test``,
``labels_test``: probabilities ``(n, K)``, or ``(n,)`` of class 1 of two, and labels ``(n,)``.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.errors import DataError
from calgrid.files.arrays import Arrays
from calgrid.files.logits import from_arrays
from calgrid.optional import say_extra
from calgrid.storage.logits import Logits, validate_logits

#: parts of the names of the arrays of val and test
PARTS = ("cal", "test")


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    with say_extra():
        import h5py  # noqa: PLC0415  (an extra)
    try:
        with h5py.File(path, "r") as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise DataError(
            f"The file {path} is not a readable HDF5 file ({error}); download it again."
        ) from None


def groups(path: Path) -> list[str]:
    """Return the groups ``dataset/model`` of a file, sorted.

    Raises
    ------
    DataError : the file is damaged.
    MissingLibraryError : h5py is not installed.
    """
    found: list[str] = []
    with _opened(path) as file:
        for dataset, models in file.items():
            found += [f"{dataset}/{model}" for model in getattr(models, "keys", tuple)()]
    return sorted(found)


def read_group(path: Path, group: str) -> tuple[Logits, Logits]:
    """Return the rows that fit calibrators and those that score them; logits are ln p.

    Raises
    ------
    DataError : the file is damaged, the group lacks an array, or numbers are no probabilities.
    MissingLibraryError : h5py is not installed.
    """
    with _opened(path) as file:
        names = [f"{what}_{part}" for part in PARTS for what in ("probas", "labels")]
        if missing := [name for name in names if name not in file[group]]:
            raise DataError(
                f"{path}: group {group} has no {missing[0]}; download the file of CalArena again."
            )
        arrays = {name: file[group][name][()] for name in names}
    nothing = Arrays([], lambda name: np.empty(0))
    read = []
    for part in PARTS:
        values, labels = arrays[f"probas_{part}"], arrays[f"labels_{part}"]
        binary = values.ndim == 1
        read.append(from_arrays(nothing, values, labels, "probabilities", path, None, binary))
    val, test = read
    validate_logits(val, str(path), n_classes=test.logits.shape[1])
    return val, test
