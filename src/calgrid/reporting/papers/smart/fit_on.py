"""What fitted a calibrator under shift: names without it, and words for it."""

from collections.abc import Mapping

import pandas as pd

from calgrid.conventions import SAME_SHIFT, SAME_SHIFT_SHARE
from calgrid.reporting.study import StudyData

#: value of ``fit_on`` -> words, in the order in which they are shown
FITTED: Mapping[str, str] = {
    "val": "fitted on clean val",
    SAME_SHIFT: f"fitted on {100 * SAME_SHIFT_SHARE:g} % of the same corruption",
}


def plain(rows: pd.DataFrame) -> list[str]:
    """Calibrators of tidy rows without what fitted them, as in the configuration."""
    return [name.removesuffix(f" ({fit_on})") for name, fit_on in zip(rows["calibrator"], rows["fit_on"], strict=True)]


def plain_names(data: StudyData) -> list[str]:
    """All calibrators of a study without what fitted them, in its order."""
    return list(dict.fromkeys(name.removesuffix(f" ({SAME_SHIFT})") for name in data.calibrators))
