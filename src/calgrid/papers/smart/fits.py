"""Traces of calibrator fits and margins of images, for one run of each group (see
``papers.smart.diagnostics``).
"""

from collections.abc import Mapping

import pandas as pd

from calgrid.calibrators.base import DRAWN_SHARE
from calgrid.report.figure import FigureData
from calgrid.report.settings import on_most_rows
from calgrid.report.study import Group, StudyData
from calgrid.storage.schema import SAME_SHIFT

#: value of ``fit_on`` -> words, in the order in which they are shown
FITTED: Mapping[str, str] = {
    "val": "fitted on clean val",
    SAME_SHIFT: f"fitted on {100 * DRAWN_SHARE:g} % of the same corruption",
}


def diagnosed(data: StudyData, group: Group, name: str) -> pd.DataFrame:
    """Rows of a file of ``papers.smart.diagnostics`` for a group's reference run; empty if another
    group has more validation rows.
    """
    rows = data.rows(name, group)
    return rows if on_most_rows(data, group) else rows.iloc[:0]


def whose(frame: FigureData) -> str:
    """Run of the figure, for captions: ``ce on digits, resnet8 (seed 1 alone)``."""
    method, seed = frame.rows[["method", "seed"]].iloc[0]
    return f"{method} on {frame.label} (seed {seed:.0f} alone)"


def plain(rows: pd.DataFrame) -> list[str]:
    """Names of the calibrators of tidy rows as in the configuration, without what they were fitted
    on.
    """
    return [
        name.removesuffix(f" ({fit_on})")
        for name, fit_on in zip(rows["calibrator"], rows["fit_on"], strict=True)
    ]


def plain_names(data: StudyData) -> list[str]:
    """Names of all calibrators of a study, in its order, without what they were fitted on."""
    return list(dict.fromkeys(name.partition(" (")[0] for name in data.calibrators))
