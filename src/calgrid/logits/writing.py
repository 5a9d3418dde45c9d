"""Files from arrays: logits of a loop over batches, and calibrated probabilities as CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from calgrid.calibrators._validation import check_names
from calgrid.errors import DataError
from calgrid.logits.arrays import Arrays
from calgrid.logits.reading import COLUMN_STARTS, from_arrays
from calgrid.metrics._inputs import as_array
from calgrid.storage import logits as storage
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import NO_LABEL


def write_logits(
    path: str | Path,
    logits: Any,
    labels: Any = None,
    classes: Sequence[str | int] | None = None,
    features: Any = None,
) -> None:
    """Write the logits of a network as Parquet, which all commands and studies read; atomically.

    Each array may be one of NumPy or a tensor, on any device, or a list with one of each batch.

    Parameters
    ----------
    path : a name that ends with ``.parquet``.
    logits : ``(N, K)`` real numbers, written as float32.
    labels : ``(N,)`` integers in [0, K), or names of ``classes``; None: unknown.
    classes : K names, in the order of the columns.
    features : ``(N, d)`` penultimate features, for calibrators that need them.

    Raises
    ------
    DataError : the name ends otherwise, or an array does not match the description above, also
        logits that are probabilities in every row.
    """
    path = Path(path)
    if path.suffix != ".parquet":
        raise DataError(f"{path}: logits are written as Parquet; let the name end with .parquet.")
    values = _joined(logits, "logits")
    truth = np.full(len(values), NO_LABEL) if labels is None else _joined(labels, "labels")
    further = {} if features is None else {"features": _joined(features, "features")}
    names = check_names(logits, classes, values.shape)
    storage.write_logits(
        path, from_arrays(Arrays(further), values, truth, "logits", path, names, False)
    )


def _joined(given: Any, name: str) -> np.ndarray:
    """One array from an array, or from the list of its batches."""
    are_batches = isinstance(given, list) and any(getattr(part, "shape", ()) for part in given)
    batches = given if are_batches else [given]
    parts = [as_array(part.cpu() if hasattr(part, "cpu") else part, name) for part in batches]
    try:
        return np.concatenate(parts) if are_batches else parts[0]
    except ValueError as error:
        raise DataError(f"The batches of {name} do not fit together ({error}).") from None


def write_csv(
    path: Path,
    index: np.ndarray,
    label: np.ndarray,
    probabilities: np.ndarray,
    classes: Sequence[str] | None,
) -> None:
    """Write probabilities, float64 (N, K), as CSV, atomically; all digits are written.

    The columns are ``index``, ``label`` and ``probability_NAME`` of each class. Labels are names
    of classes too, and empty without a label.

    Parameters
    ----------
    index, label : (N,) integers; the label -1 is none.
    classes : K names; None: 0 to K-1.
    """
    names = list(classes or map(str, range(probabilities.shape[1])))
    labels = [None if number == NO_LABEL else names[number] for number in label.tolist()]
    columns = {"index": pa.array(index), "label": pa.array(labels, pa.string())}
    for name, values in zip(names, probabilities.T, strict=True):
        columns[COLUMN_STARTS["probabilities"] + name] = pa.array(values)
    with replacing(path) as temporary:
        pa.csv.write_csv(pa.table(columns), temporary)
