"""Settings over which methods or calibrators are compared, and data sets that differ in their
validation rows.
"""

import math
import re
from collections.abc import Collection
from typing import Literal

import pandas as pd

from calgrid.report.study import UNCALIBRATED, Group, StudyData

Kind = Literal["method", "calibrator"]


def settings(data: StudyData, kind: Kind, metrics: Collection[str]) -> pd.DataFrame:
    """Tidy means of metrics on the clean test split, with the columns ``setting`` and ``name``
    (what is compared).

    For methods, a setting is a protocol, data set and backbone, without calibration; for
    calibrators, it also has a method. Of several checkpoints only the first is used.
    """
    parts = []
    for group in data.settings:
        rows = data.tidy(group, "test", [UNCALIBRATED] if kind == "method" else None)
        where = "/".join(group) if kind == "method" else "/".join(group) + "/" + rows["method"]
        parts.append(rows[rows["metric"].isin(metrics)].assign(setting=where, name=rows[kind]))
    return pd.concat(parts)


def val_rows(data: StudyData, group: Group) -> tuple[str, float]:
    """Data set of a group and its number of validation rows, infinity if it is not limited.

    Data sets made by the key ``val_rows`` of an external import are named ``{data set}_n{rows}``.
    """
    found = re.fullmatch(r"(.+)_n(\d+)", group.dataset)
    if found is None or not all(run["external"] for run in data.runs(group)):
        return group.dataset, math.inf
    return found[1], int(found[2])


def on_most_rows(data: StudyData, group: Group) -> bool:
    """Is there no group that differs only in having more validation rows?"""
    dataset, rows = val_rows(data, group)
    for other in data.groups:
        if other._replace(dataset="") == group._replace(dataset=""):
            name, more = val_rows(data, other)
            if name == dataset and more > rows:
                return False
    return True
