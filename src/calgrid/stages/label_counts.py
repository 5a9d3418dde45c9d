"""Label counts: the number of people who chose each class for each test image, read from a file of the user."""

import hashlib
from pathlib import Path

import numpy as np

from calgrid.errors import DataError, StateError
from calgrid.specs import LabelCounts
from calgrid.storage.logits import Logits, read_matrix, read_table

COLUMN = "counts"


def label_distribution(spec: LabelCounts, data: Logits) -> np.ndarray:
    """Fraction of people who chose each class, float32 (N, K), one row for each row of ``data``.

    Raises StateError: the file has changed since planning. DataError: it is missing or damaged, or does not match the
    rows.

    Parameters
    ----------
    spec : ``file`` and the ``sha256`` of its content at planning.
    data : test rows; ``index`` is their row in the file. A whole test set needs a file with equally many rows; for a
        part of one the file must contain all its indices.
    """
    path = Path(spec["file"])
    if not path.is_file():
        raise DataError(f"The label counts {path} do not exist: correct label_counts or data_root.")
    if hashlib.sha256(path.read_bytes()).hexdigest() != spec["sha256"]:
        raise StateError(f"The label counts {path} have changed since the work was planned: start again.")
    counts = _read(path)
    _check(counts, data, path)
    chosen = counts[data.index]
    return (chosen / chosen.sum(axis=1, keepdims=True)).astype(np.float32)


def _read(path: Path) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = read_table(path, "file of label counts", "write it again")
        if COLUMN not in table.column_names:
            raise DataError(f"{path} has no column '{COLUMN}' with a list of numbers for each image.")
        return read_matrix(table, COLUMN, path).astype(np.float64)
    if suffix != ".npy":
        raise DataError(f"{path}: label counts are read from .npy or .parquet, not from '{suffix}'.")
    try:
        counts = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = str(error).split(". ")[0]
        raise DataError(
            f"The label counts {path} are damaged or not an .npy file ({reason}): write them again."
        ) from None
    if counts.ndim != 2 or counts.dtype.kind not in "iuf":
        raise DataError(f"{path} must hold numbers of shape (N, K), but it holds {counts.dtype} {counts.shape}.")
    return counts.astype(np.float64)


def _check(counts: np.ndarray, data: Logits, path: Path) -> None:
    rows, n_classes = data.logits.shape
    if counts.shape[1] != n_classes:
        raise DataError(f"{path} has {counts.shape[1]} columns, the data set has {n_classes} classes.")
    whole = np.array_equal(np.sort(data.index), np.arange(rows))
    needed = rows if whole else int(data.index.max()) + 1
    if len(counts) < needed or (whole and len(counts) != rows) or data.index.min() < 0:
        raise DataError(f"{path} has {len(counts)} rows, the test split needs {needed}: one for each of its images.")
    bad = ~(np.isfinite(counts).all(axis=1) & (counts >= 0).all(axis=1) & (counts.sum(axis=1) > 0))
    if bad.any():
        raise DataError(
            f"{path}: {int(bad.sum())} rows hold a count that is negative or not finite, or no count at all, the "
            f"first is row {int(bad.argmax())}."
        )
