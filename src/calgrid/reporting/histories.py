"""Training histories of a study: one table a method over all seeds; training samples of its last sampled epoch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from calgrid.reporting.study import Group, StudyData
from calgrid.storage.records import TRAIN, read_record, verified
from calgrid.storage.tables import read_frame


def histories(data: StudyData, group: Group, column: str = "epoch") -> dict[str, pd.DataFrame]:
    """Histories of the methods of a group that measured something.

    Parameters
    ----------
    column : what must have been measured at least once; the epoch is there always.

    Returns
    -------
    Method -> its histories of all seeds, with the column ``seed``; epochs count from 1. External runs have none.

    Raises
    ------
    DataError : a history is missing or damaged.
    """
    tables: dict[str, list[pd.DataFrame]] = {}
    for run in data.runs(group):
        if not run["external"]:
            history = data.history(run["run"])
            if column in history and history[column].notna().any():
                named = history.assign(seed=run["key"]["seed"], epoch=history["epoch"] + 1)
                tables.setdefault(run["key"]["method"], []).append(named)
    return {method: pd.concat(parts, ignore_index=True) for method, parts in tables.items()}


def last_epochs(history: pd.DataFrame) -> pd.DataFrame:
    """Last epoch of each seed, one row a seed."""
    return history.loc[history.groupby("seed")["epoch"].idxmax()]


def last_samples(data: StudyData, group: Group, indicator: str | None = None) -> dict[str, list[pd.DataFrame]]:
    """Training samples of the last sampled epoch of each run that wrote some, sorted by ``index``.

    Parameters
    ----------
    indicator : of the runs that are wanted; None wants all.

    Returns
    -------
    Method -> one table a seed, in the order of the study.

    Raises
    ------
    DataError : a file of samples or the record of a training is missing or damaged.
    """
    found: dict[str, list[pd.DataFrame]] = {}
    for run in data.runs(group):
        path = Path(run["run"], "samples.parquet")
        if run["external"] or not path.exists():
            continue
        if indicator is None or loss_options(run["run"]).get("indicator") == indicator:
            table = read_frame(verified(run["run"], TRAIN, path.name, "file of training samples"))
            last = table[table["epoch"] == table["epoch"].max()].sort_values("index")
            found.setdefault(run["key"]["method"], []).append(last)
    return {method: found[method] for method in data.methods if method in found}


def loss_options(run: str) -> Mapping[str, Any]:
    """Options of the loss with which a run was trained."""
    return read_record(Path(run, TRAIN), "train record")["spec"]["loss"]["options"]
