"""Fits of calibrators and margins between logits, of one run of each group (``storage.schema``)."""

import pandas as pd

from calgrid.reporting.figure import Frame
from calgrid.reporting.settings import on_most_rows
from calgrid.reporting.study import Group, StudyData
from calgrid.storage.schema import FITS, MARGINS

#: the calibrator that the figures are about
MAIN = "smart"


def fits(data: StudyData, group: Group) -> pd.DataFrame:
    """Courses of the fits of a group's reference run; none where another group has more validation rows."""
    return _own(data, group, FITS)


def margins(data: StudyData, group: Group) -> pd.DataFrame:
    """Margins of the images of a group's reference run; none where another group has more validation rows."""
    return _own(data, group, MARGINS)


def _own(data: StudyData, group: Group, name: str) -> pd.DataFrame:
    rows = data.rows(name, group)
    return rows if on_most_rows(data, group) else rows.iloc[:0]


def whose(frame: Frame) -> str:
    """Say for a caption which run the figure is about: ``ce on digits, resnet8 (seed 1 alone)``."""
    method, seed = frame.rows[["method", "seed"]].iloc[0]
    return f"{method} on {frame.label} (seed {seed:.0f} alone)"
