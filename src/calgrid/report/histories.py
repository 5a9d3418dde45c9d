"""Training histories of a study, and training samples of the last sampled epoch."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from calgrid.report import text
from calgrid.report.study import Group, StudyData
from calgrid.storage.schema import HISTORIES, SAMPLES, SETTING


def histories(data: StudyData, group: Group, column: str = "epoch") -> pd.DataFrame:
    """Histories of the runs of a group, one row per epoch, counted from 1; external runs have none.

    Parameters
    ----------
    column : selects runs with at least one value in this column; every run has ``epoch``.
    """
    rows = _of_setting(data, HISTORIES, group)
    if column not in rows:
        return rows.iloc[:0]
    measured = rows.groupby(["method", "seed"])[column].transform("count") > 0
    return rows[measured].assign(epoch=rows["epoch"] + 1)


def last_samples(data: StudyData, group: Group) -> pd.DataFrame:
    """Training samples of the last sampled epoch of each run that wrote some, sorted by run and
    index.
    """
    rows = _of_setting(data, SAMPLES, group)
    return data.in_order(rows, data.methods, by=("method",))


def sampled_epochs(samples: pd.DataFrame) -> str:
    """Epochs of training samples, counted from 1, for captions: ``5 and 6``."""
    epochs = np.unique(samples["epoch"].astype(int)) + 1
    return text.listed(list(map(str, epochs)))


def loss_options(data: StudyData, group: Group, method: str) -> Mapping[str, Any]:
    """Options of the loss with which a method of a group was trained; empty for an external run."""
    for run in data.runs(group):
        if run["key"]["method"] == method:
            return data.facts(run).get("loss", {}).get("options", {})
    return {}


def _of_setting(data: StudyData, name: str, group: Group) -> pd.DataFrame:
    return data.rows(name, **dict(zip(SETTING, group, strict=False)))
