"""Marks of best and second in a paper's table, and mean ranks, both by the digits shown."""

import pandas as pd

from calgrid.metrics import METRICS
from calgrid.papers.declared import COORDINATES, PaperTable
from calgrid.statistics import mean_ranks

BEST, SECOND = "best", "second"
BEST_PLACE = 1
#: least number of competing cells for a mark of the second
FEWEST_FOR_SECOND = 3


def lower_is_better(metric: str) -> bool | None:
    """Direction of a metric; ranks and seconds, which are no metrics, are better if lower."""
    return METRICS[metric].lower_is_better if metric in METRICS else True


def marks(table: PaperTable, frame: pd.DataFrame, column: str, exclude: pd.Series) -> pd.Series:
    """Best and second of the cells that compete: equal in all coordinates but those of
    ``best_over``.

    Returns ``best``, ``second`` or an empty string for each cell. Ties share their mark; a single
    cell has no mark, and of two cells only the best has one.

    Parameters
    ----------
    frame : one row per cell with ``COORDINATES`` and the numbers in ``column``.
    exclude : cells that do not compete.
    """
    found = pd.Series("", index=frame.index)
    present = frame.assign(number=frame[column].mask(exclude)).dropna(subset="number")
    if present.empty:
        return found
    numbers = zip(present["metric"], present["number"], strict=True)
    present["number"] = [table.shown(metric, value) for metric, value in numbers]
    rivals = [axis for axis in COORDINATES if axis not in table.best_over]
    for keys, group in present.groupby(rivals, sort=False):
        lower = lower_is_better(keys[rivals.index("metric")])
        if len(group) > 1 and lower is not None:
            place = group["number"].rank(method="dense", ascending=lower)
            found.loc[place.index[place == BEST_PLACE]] = BEST
            if len(group) >= FEWEST_FOR_SECOND:
                found.loc[place.index[place == BEST_PLACE + 1]] = SECOND
    return found


def row_ranks(table: PaperTable, frame: pd.DataFrame, column: str, metric: str) -> pd.Series:
    """Mean rank of each row over the columns with a metric; ties share the smaller rank.

    Rows with a missing number are left out; fewer than two rows have no ranks.

    Parameters
    ----------
    frame : one row per cell with ``row``, ``column``, ``metric``, ``is_mean`` and the numbers in
        ``column``.
    """
    cells = frame[(frame["metric"] == metric) & ~frame["is_mean"]]
    numbers = cells[column].map(lambda value: table.shown(metric, value), na_action="ignore")
    scores = cells.assign(number=numbers).pivot(index="column", columns="row", values="number")
    scores = scores.dropna(axis="columns")
    if scores.shape[1] < 2:
        return pd.Series(dtype="float64")
    return mean_ranks(scores, lower_is_better=bool(lower_is_better(metric)), ties="min")
