"""Validation of metrics frames."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS


def check_columns(frame: pd.DataFrame, needed: Sequence[str], name: str) -> None:
    """Raise DataError if ``frame`` lacks columns of ``needed``; ``name`` is the argument in messages."""
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise DataError(f"{name} must have the columns {', '.join(needed)}; missing: {', '.join(missing)}.")


def check_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics frame with plain strings, float64 numbers and no missing keys.

    Raises DataError if a column is missing, or if two rows hold the same number of the same run.
    """
    check_columns(metrics, (*NUMBER_KEY, *SEEDS, "value", *INTERVAL), "metrics")
    words = [key for key in NUMBER_KEY if key != "severity"]
    frame = metrics.copy()
    frame[words] = frame[words].astype(object).fillna("").astype(str)
    frame["severity"] = frame["severity"].fillna(0).astype(int)
    frame["fit_seed"] = frame["fit_seed"].fillna(0)
    frame[["value", *INTERVAL]] = frame[["value", *INTERVAL]].astype("float64")
    refuse_twice(frame, frame.duplicated([*NUMBER_KEY, *SEEDS]).to_numpy())
    return frame


def refuse_twice(metrics: pd.DataFrame, twice: NDArray[np.bool_]) -> None:
    """Raise DataError for the first row with a repeated key; ``twice`` (n,)."""
    if twice.any():
        row = metrics[[*NUMBER_KEY, *SEEDS]].iloc[int(twice.argmax())].to_dict()
        raise DataError(f"metrics must hold each number once, found several rows for {row}.")
