"""The tidy metrics frame: its columns, and the checks before statistics are made of it."""

from collections.abc import Sequence
from typing import NoReturn

import pandas as pd

from calgrid.errors import DataError

#: what a reported number is about; rows that agree on these differ only in seeds
KEYS = (
    "protocol",
    "dataset",
    "backbone",
    "method",
    "checkpoint",
    "calibrator",
    "fit_on",
    "split",
    "shift",
    "severity",
    "metric",
)
SEEDS = ("seed", "fit_seed")
INTERVAL = ("ci_low", "ci_high")


def check_columns(frame: pd.DataFrame, needed: Sequence[str], name: str) -> None:
    """Raise DataError naming the columns of ``needed`` that ``frame`` lacks; ``name`` is the argument in messages."""
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise DataError(f"{name} must have the columns {', '.join(needed)}; missing: {', '.join(missing)}.")


def check_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics frame with plain strings, float64 numbers and no missing keys.

    Raises
    ------
    DataError : if a column is missing, or if two rows hold the same number of the same run.
    """
    check_columns(metrics, (*KEYS, *SEEDS, "value", *INTERVAL), "metrics")
    words = [key for key in KEYS if key != "severity"]
    frame = metrics.copy()
    frame[words] = frame[words].astype(object).fillna("").astype(str)
    frame["severity"] = frame["severity"].fillna(0).astype(int)
    frame["fit_seed"] = frame["fit_seed"].fillna(0)
    frame[["value", *INTERVAL]] = frame[["value", *INTERVAL]].astype("float64")
    twice = frame.duplicated([*KEYS, *SEEDS])
    if twice.any():
        refuse_twice(frame.loc[twice.idxmax(), [*KEYS, *SEEDS]])
    return frame


def refuse_twice(row: pd.Series) -> NoReturn:
    """Raise DataError for a number that stands twice; ``row`` says which."""
    raise DataError(f"metrics must hold each number once, found several rows for {row.to_dict()}.")
