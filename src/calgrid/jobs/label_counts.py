"""Label counts: how many people chose each class for each test image, from a file."""

from pathlib import Path

import numpy as np

from calgrid.errors import DataError, row_at
from calgrid.progress import log
from calgrid.storage.logits import Logits, read_matrix, read_table
from calgrid.storage.specs import LabelCounts

COLUMN = "counts"
#: share of images with the most chosen class as label, below which the order is doubtful
AGREEMENT = 0.5


def label_distribution(spec: LabelCounts, data: Logits) -> np.ndarray:
    """Relative frequencies of the classes, float32 (N, K), for the rows of ``data``.

    The ``index`` of test rows is their row in the file. A complete test set needs a file of the
    same length, a part of one needs a file that contains the rows.

    Raises
    ------
    DataError : the file is missing, damaged, or does not fit the rows.
    """
    path = Path(spec["file"])
    if not path.is_file():
        raise DataError(f"The label counts {path} do not exist; correct label_counts or data_root.")
    counts = _read(path)
    _check(counts, data, path)
    chosen = counts[data.index]
    agreement = float((chosen.argmax(axis=1) == data.label).mean())
    if agreement < AGREEMENT:
        log(
            f"Warning: {path}: most people chose the label of only {100 * agreement:.0f} % of the "
            "images; see that its rows have the order of the test images, and its columns that of "
            "the classes."
        )
    return (chosen / chosen.sum(axis=1, keepdims=True)).astype(np.float32)


def _read(path: Path) -> np.ndarray:
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        table = read_table(path, "file of label counts", "write it again")
        if COLUMN not in table.column_names:
            raise DataError(
                f"{path} has no column '{COLUMN}'; add one with a list of numbers for each image."
            )
        return read_matrix(table, COLUMN, path).astype(np.float64)
    if suffix != ".npy":
        raise DataError(f"{path}: label counts must be a .npy or .parquet file, not '{suffix}'.")
    try:
        counts = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        reason = str(error).split(". ")[0]
        raise DataError(
            f"The label counts {path} are damaged or not a .npy file ({reason}); write them again."
        ) from None
    if counts.ndim != 2 or counts.dtype.kind not in "iuf":
        raise DataError(
            f"{path} must contain numbers of shape (N, K), it contains {counts.dtype} "
            f"{counts.shape}."
        )
    return counts.astype(np.float64)


def _check(counts: np.ndarray, data: Logits, path: Path) -> None:
    rows, n_classes = data.logits.shape
    if counts.shape[1] != n_classes:
        raise DataError(
            f"{path} has {counts.shape[1]} columns, but the data set has {n_classes} classes."
        )
    whole = np.array_equal(np.sort(data.index), np.arange(rows))
    needed = rows if whole else int(data.index.max()) + 1
    if len(counts) < needed or (whole and len(counts) != rows) or data.index.min() < 0:
        raise DataError(
            f"{path} has {len(counts)} rows, but the test split needs {needed}, one for each image."
        )
    bad = ~(np.isfinite(counts).all(axis=1) & (counts >= 0).all(axis=1) & (counts.sum(axis=1) > 0))
    if bad.any():
        raise DataError(
            f"{path}: {int(bad.sum())} rows have a negative or non-finite count, or no count above "
            f"0; the first is {row_at(int(bad.argmax()))}."
        )
