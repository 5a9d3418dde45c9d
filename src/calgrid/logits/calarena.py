"""Predictions of the benchmark CalArena (arXiv 2605.30188), HDF5 files.

Each group ``dataset/model`` has ``probas_cal``, ``labels_cal`` and ``probas_test``,
``labels_test``: probabilities ``(n, K)``, or ``(n,)`` of class 1 of two, and labels ``(n,)``.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.errors import DataError
from calgrid.logits.arrays import Arrays
from calgrid.logits.reading import from_arrays
from calgrid.optional import say_extra
from calgrid.storage.logits import Logits, validate_logits

#: of the rows to fit calibrators, and of the rows to score them
ARRAYS = ("probas_cal", "labels_cal", "probas_test", "labels_test")


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
    with _opened(path) as file:
        models: dict[str, Iterable[str]] = {
            dataset: getattr(group, "keys", tuple)() for dataset, group in file.items()
        }
        return sorted(f"{dataset}/{name}" for dataset, names in models.items() for name in names)


def read_group(path: Path, group: str) -> tuple[Logits, Logits]:
    """Return the rows to fit calibrators and the rows to score them; logits are ln p.

    Raises
    ------
    DataError : the file is damaged, the group lacks an array, or numbers are no probabilities.
    MissingLibraryError : h5py is not installed.
    """
    arrays = []
    with _opened(path) as file:
        for name in ARRAYS:
            if name not in file[group]:
                raise DataError(
                    f"{path}: group {group} has no {name}; download the file of CalArena again."
                )
            arrays.append(file[group][name][()])
    val = _rows(arrays[0], arrays[1], path)
    test = _rows(arrays[2], arrays[3], path)
    validate_logits(val, str(path), n_classes=test.logits.shape[1])
    return val, test


def _rows(values: np.ndarray, labels: np.ndarray, path: Path) -> Logits:
    return from_arrays(Arrays({}), values, labels, "probabilities", path, None, values.ndim == 1)
