"""Files for people: calibrated probabilities as CSV."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv

from calgrid.files.logits import PROBABILITY
from calgrid.storage.atomic import replacing
from calgrid.storage.logits import NO_LABEL


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
    numbers = range(probabilities.shape[1])
    names = list(classes) if classes else list(map(str, numbers))
    labels = [None if number == NO_LABEL else names[number] for number in label.tolist()]
    columns = {"index": pa.array(index), "label": pa.array(labels, pa.string())}
    for number in numbers:
        columns[PROBABILITY + names[number]] = pa.array(probabilities[:, number])
    with replacing(path) as temporary:
        pa.csv.write_csv(pa.table(columns), temporary)
