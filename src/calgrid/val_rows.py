"""Which rows of the validation split serve which purpose.

Common practice lets the same rows choose the checkpoint, steer training (AdaFocal, CALS-ALM) and fit the calibrator, so
that each of them is judged by rows that an earlier one has used already. Under a protocol with
``disjoint_validation: true`` each purpose has a third of the rows for itself.
"""

from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

#: chooses checkpoints and hyper-parameters; these rows are also what ``split: val`` scores
CHOICE = "choice"
#: what a loss sees during training
FEEDBACK = "feedback"
#: fits the calibrators
FIT = "fit"
PURPOSES = (CHOICE, FEEDBACK, FIT)


def rows_by_purpose(labels: Any, disjoint: bool) -> MappingProxyType[str, NDArray[np.int64]]:
    """Return the row numbers of the validation split for each purpose, ascending.

    Raises DataError: there are fewer rows than purposes.

    Parameters
    ----------
    labels : (n,) integer classes of the validation rows, in their order.
    disjoint : deal the rows of each class in turn to the three purposes, so that each has a third of every class, to
        within one row; else each purpose gets all rows. Nothing is random: the split itself was drawn already.
    """
    labels = np.asarray(labels)
    if not disjoint:
        return MappingProxyType(dict.fromkeys(PURPOSES, np.arange(len(labels))))
    if len(labels) < len(PURPOSES):
        raise DataError(
            f"disjoint_validation: {len(labels)} validation rows can't be dealt to {len(PURPOSES)} purposes; use a "
            "larger validation split."
        )
    by_class = np.argsort(labels, kind="stable")
    # taken on over classes, so that the sizes differ by one row at most
    return MappingProxyType(
        {purpose: np.sort(by_class[start :: len(PURPOSES)]) for start, purpose in enumerate(PURPOSES)}
    )
