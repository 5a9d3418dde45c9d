"""Settings over which methods or calibrators are compared, and sets of validation rows that nest in each other."""

import math
import re
from collections.abc import Collection
from typing import Literal

import pandas as pd

from calgrid.reporting.study import UNCALIBRATED, Group, StudyData

Kind = Literal["method", "calibrator"]


def settings(data: StudyData, kind: Kind, metrics: Collection[str]) -> pd.DataFrame:
    """Tidy means of metrics on the clean test split with the columns ``setting`` and ``name`` (of the competitor).

    A setting of methods is a protocol, data set and backbone, without calibration; one of calibrators has a method too.
    Of two checkpoints the first counts.
    """
    parts = []
    for group in data.conditions:
        rows = data.tidy(group, "test", [UNCALIBRATED] if kind == "method" else None)
        where = "/".join(group) if kind == "method" else "/".join(group) + "/" + rows["method"]
        parts.append(rows[rows["metric"].isin(metrics)].assign(setting=where, name=rows[kind]))
    return pd.concat(parts)


def val_rows(data: StudyData, group: Group) -> tuple[str, float]:
    """Data set of a group without its number of validation rows, and that number: inf where it is not limited.

    Runs of the key ``val_rows`` of an external import are named ``{data set}_n{rows}``.
    """
    found = re.fullmatch(r"(.+)_n(\d+)", group.dataset)
    if found is None or not all(run["external"] for run in data.runs(group)):
        return group.dataset, math.inf
    return found[1], int(found[2])


def on_most_rows(data: StudyData, group: Group) -> bool:
    """Whether no other group differs only by more validation rows."""
    dataset, rows = val_rows(data, group)
    alike = [other for other in data.groups if other._replace(dataset="") == group._replace(dataset="")]
    return all(more <= rows for name, more in (val_rows(data, other) for other in alike) if name == dataset)
