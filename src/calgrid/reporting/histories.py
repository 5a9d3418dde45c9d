"""Training histories of a study, and training samples of the last sampled epoch."""

from collections.abc import Mapping
from typing import Any

import pandas as pd

from calgrid.reporting.study import Group, StudyData
from calgrid.storage.schema import CONDITION, HISTORIES, RUN_KEY, SAMPLES


def histories(data: StudyData, group: Group, column: str = "epoch") -> pd.DataFrame:
    """Histories of the runs of a group, one row per epoch; epochs count from 1.

    Parameters
    ----------
    column : what must have been measured at least once; the epoch is there always. External runs have no history.
    """
    rows = _of_condition(data, HISTORIES, group)
    if column not in rows:
        return rows.iloc[:0]
    measured = rows.groupby(["method", "seed"])[column].transform("count") > 0
    return rows[measured].assign(epoch=rows["epoch"] + 1)


def last_epochs(history: pd.DataFrame) -> pd.DataFrame:
    """Last epoch of each seed of a method, one row per seed."""
    return history.loc[history.groupby("seed")["epoch"].idxmax()]


def last_samples(data: StudyData, group: Group, indicator: str | None = None) -> pd.DataFrame:
    """Training samples of the last sampled epoch of each run that wrote some, sorted by run and index.

    Parameters
    ----------
    indicator : indicator of the selected runs; None selects all.
    """
    rows = _of_condition(data, SAMPLES, group)
    wanted = [
        method
        for method in data.methods
        if indicator is None or loss_options(data, group, method).get("indicator") == indicator
    ]
    parts = [rows[rows["method"] == method] for method in wanted]
    return pd.concat([rows.iloc[:0], *parts], ignore_index=True)


def loss_options(data: StudyData, group: Group, method: str) -> Mapping[str, Any]:
    """Options of the loss with which a method of a group was trained; nothing where it was not trained here."""
    for run in data.runs(group):
        if run["key"]["method"] == method:
            facts = data.facts[tuple(run["key"][name] for name in RUN_KEY)]
            return facts.get("loss", {}).get("options", {})
    return {}


def _of_condition(data: StudyData, name: str, group: Group) -> pd.DataFrame:
    return data.rows(name, **dict(zip(CONDITION, group, strict=False)))
