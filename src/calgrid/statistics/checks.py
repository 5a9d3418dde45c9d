"""Validation of metrics frames."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS


def keys_without(*names: str) -> list[str]:
    """Keys of a number except some."""
    return [key for key in NUMBER_KEY if key not in names]


#: keys of a number that are strings
WORDS = tuple(keys_without("severity"))


def check_columns(frame: pd.DataFrame, needed: Sequence[str], name: str) -> None:
    """Raise DataError if ``frame`` lacks columns of ``needed``; ``name`` is the argument in
    messages.
    """
    missing = pd.Index(needed).difference(frame.columns, sort=False)
    if len(missing):
        raise DataError(
            f"{name} must have the columns {', '.join(needed)}; missing: {', '.join(missing)}."
        )


def check_metrics(metrics: pd.DataFrame) -> pd.DataFrame:
    """Return the metrics frame with words as sorted categories, float64 numbers, empty words or 0
    for missing keys, and NaN for unknown ``n_samples``.

    Grouping by categories is several times faster than by strings.

    Raises
    ------
    DataError : a column is missing, or two rows hold the same number of the same run.
    """
    check_columns(metrics, (*NUMBER_KEY, *SEEDS, "value", *INTERVAL), "metrics")
    words = {}
    for key in WORDS:
        found = metrics[key].astype("category").cat.rename_categories(str)
        words[key] = found.cat.set_categories(sorted({*found.cat.categories, ""})).fillna("")
    frame = metrics.astype(dict.fromkeys(("value", *INTERVAL), "float64")).assign(
        **words,
        severity=metrics["severity"].fillna(0).astype(int),
        fit_seed=metrics["fit_seed"].fillna(0),
        n_samples=metrics.get("n_samples", np.nan),
    )
    if (twice := frame.duplicated([*NUMBER_KEY, *SEEDS])).any():
        row = frame.loc[twice.to_numpy(), [*NUMBER_KEY, *SEEDS]].iloc[0].to_dict()
        raise DataError(f"metrics must hold each number once, found several rows for {row}.")
    return frame


def groups(frame: pd.DataFrame, keys: Sequence[str]) -> NDArray[np.int64]:
    """Number (n,) of the group of equal ``keys`` of each row, from 0 in the order of the keys."""
    return frame.groupby(list(keys), observed=True).ngroup().to_numpy()
