"""Integer keys of the cells of a metrics frame, for fast grouping and joining of millions of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.statistics._checks import check_columns, refuse_twice
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS

Ids = NDArray[np.int64]
#: upper bound of products of numbers of values, so that they fit into 64-bit integers
LARGEST = 2**62


@dataclass(frozen=True)
class NumberKeys:
    """The cells of a frame: all existing combinations of ``NUMBER_KEY``, sorted.

    Attributes
    ----------
    codes : for each key the index (n,) of each cell's value in ``values``.
    values : for each key its values, sorted.
    """

    codes: dict[str, Ids]
    values: dict[str, pd.Index]

    def __len__(self) -> int:
        return len(self.codes[NUMBER_KEY[0]])

    def frame(self) -> pd.DataFrame:
        """Return the keys of all cells, one row per cell."""
        return pd.DataFrame({key: self.values[key].take(self.codes[key]) for key in NUMBER_KEY})

    def ids(self, keys: Sequence[str]) -> Ids:
        """Index (n,) of each cell's group of equal ``keys``, from 0 without gaps."""
        codes, _ = pd.factorize(combined([(self.codes[key], len(self.values[key])) for key in keys]), sort=True)
        return codes.astype(np.int64)

    def having(self, key: str, value: str) -> NDArray[np.bool_]:
        """Whether ``key`` is ``value`` for each cell (n,)."""
        return (self.values[key] == value)[self.codes[key]]


def split_numbers(metrics: pd.DataFrame) -> tuple[NumberKeys, pd.DataFrame]:
    """Return the cells of a metrics frame and its values, sorted by cell and seeds.

    Returns the cells, and a frame with the columns cell (place among the cells), run (number of the run seed),
    fit_seed, value, ci_low, ci_high. Raises DataError if a column is missing, or if two rows hold the same number of
    the same run.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`; words may be categories.
    """
    check_columns(metrics, (*NUMBER_KEY, *SEEDS, "value", *INTERVAL), "metrics")
    keys = {key: coded(metrics[key]) for key in NUMBER_KEY}
    cell, unique = pd.factorize(combined([(codes, len(values)) for codes, values in keys.values()]), sort=True)
    seeds = [pd.factorize(metrics[name].fillna(0), sort=True) for name in SEEDS]
    identity = combined([(cell, len(unique)), *((codes, len(values)) for codes, values in seeds)])
    refuse_twice(metrics, pd.Index(identity).duplicated())
    order = np.argsort(identity, kind="stable")
    first = np.zeros(len(unique), dtype=np.int64)
    first[cell[::-1]] = np.arange(len(cell))[::-1]
    cells = NumberKeys(
        {key: codes[first] for key, (codes, _) in keys.items()}, {k: values for k, (_, values) in keys.items()}
    )
    numbers = {name: metrics[name].to_numpy(dtype=np.float64, na_value=np.nan)[order] for name in ("value", *INTERVAL)}
    places = {"cell": cell[order], "run": seeds[0][0][order], "fit_seed": seeds[1][0][order]}
    return cells, pd.DataFrame({**places, **numbers})


def coded(column: pd.Series) -> tuple[Ids, pd.Index]:
    """Index of each value in the sorted values, and these; missing strings become empty, missing numbers zero."""
    if column.name == "severity":
        codes, values = pd.factorize(column.fillna(0).astype(int), sort=True)
        return codes.astype(np.int64), pd.Index(values)
    codes, found = pd.factorize(column)  # sorts only the unique values; -1 is missing
    places, words = pd.factorize(np.array([*map(str, found), ""], dtype=object), sort=True)
    used = np.unique(places[codes])
    return np.searchsorted(used, places[codes]), pd.Index(words[used])


def combined(columns: Sequence[tuple[Ids, int]]) -> Ids:
    """One integer (n,) for each combination of codes, in lexicographic order."""
    total, size = np.zeros(len(columns[0][0]), dtype=np.int64), 1
    for codes, n_values in columns:
        if size * max(n_values, 1) > LARGEST:
            total, unique = pd.factorize(total, sort=True)
            size = len(unique)
        total, size = total * n_values + codes, size * max(n_values, 1)
    return total
