"""Training histories of a study: one table a method over all seeds."""

import pandas as pd

from calgrid.reporting.study import Group, StudyData


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
