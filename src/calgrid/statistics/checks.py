"""Validation of metrics frames."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS

#: keys of a number that are strings
WORDS = tuple(key for key in NUMBER_KEY if key != "severity")
#: number of test samples, if it is not known
MANY = 10**9


def check_columns(frame: pd.DataFrame, needed: Sequence[str], name: str) -> None:
    """Raise DataError if ``frame`` lacks columns of ``needed``; ``name`` is the argument in
    messages.
    """
    missing = [column for column in needed if column not in frame.columns]
    if missing:
        raise DataError(
            f"{name} must have the columns {', '.join(needed)}; missing: {', '.join(missing)}."
        )


def check_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics frame with words as sorted categories, float64 numbers, empty words or 0
    for missing keys, and many ``n_samples`` if these are not given.

    Grouping by categories is several times faster than by strings.

    Raises
    ------
    DataError : a column is missing, or two rows hold the same number of the same run.
    """
    check_columns(metrics, (*NUMBER_KEY, *SEEDS, "value", *INTERVAL), "metrics")
    n_samples = metrics["n_samples"].fillna(MANY) if "n_samples" in metrics else MANY
    frame = metrics.astype(dict.fromkeys(("value", *INTERVAL), "float64")).assign(
        **{key: _categories(metrics[key]) for key in WORDS},
        severity=metrics["severity"].fillna(0).astype(int),
        fit_seed=metrics["fit_seed"].fillna(0),
        n_samples=n_samples,
    )
    if (twice := frame.duplicated([*NUMBER_KEY, *SEEDS])).any():
        row = frame.loc[twice.to_numpy(), [*NUMBER_KEY, *SEEDS]].iloc[0].to_dict()
        raise DataError(f"metrics must hold each number once, found several rows for {row}.")
    return frame


def groups(frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[np.int64]:
    """Number (n,) of the group of equal ``keys`` of each row, from 0 in the order of the keys."""
    return frame.groupby(list(keys), observed=True).ngroup().to_numpy()


def _categories(column: pd.Series) -> pd.Series:
    """Words as sorted categories; missing ones become empty."""
    words = column.astype("category").cat.rename_categories(str)
    return words.cat.set_categories(sorted({*words.cat.categories, ""})).fillna("")
