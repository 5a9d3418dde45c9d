"""Rows of the validation split for each purpose.

Usually the same rows select the checkpoint, give feedback during training (AdaFocal, CALS-ALM) and
fit the calibrator, so that later steps use rows that earlier ones have fitted. With
``disjoint_validation: true`` in a protocol each purpose has its own third of the rows.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

#: selection of checkpoints and hyper-parameters; ``split: val`` is scored on these rows
CHOICE = "choice"
#: feedback to a loss during training
FEEDBACK = "feedback"
#: fit of calibrators
FIT = "fit"
PURPOSES = (CHOICE, FEEDBACK, FIT)


def rows_by_purpose(labels: Any, disjoint: bool) -> dict[str, NDArray[np.int64]]:
    """Return the row numbers of the validation split for each purpose, ascending.

    Parameters
    ----------
    labels : (n,) integer classes of the validation rows, in their order.
    disjoint : deal the rows of each class in turn to the three purposes, so that each has a third
        of every class, to within one row; else each purpose gets all rows. Nothing is random: the
        split itself was drawn already.

    Raises
    ------
    DataError : there are fewer rows than purposes.
    """
    labels = np.asarray(labels)
    if not disjoint:
        return dict.fromkeys(PURPOSES, np.arange(len(labels)))
    if len(labels) < len(PURPOSES):
        raise DataError(
            f"disjoint_validation: {len(labels)} validation rows can't be dealt to {len(PURPOSES)} "
            "purposes; use a larger validation split."
        )
    by_class = np.argsort(labels, kind="stable")
    # continued over classes, so that the sizes differ by at most one row
    rows = {}
    for start, purpose in enumerate(PURPOSES):
        rows[purpose] = np.sort(by_class[start :: len(PURPOSES)])
    return rows
