"""Cells of paper tables: a metric of some runs, or a mean over places, with its interval."""

from typing import Literal

import pandas as pd

from calgrid.statistics.checks import WORDS, check_metrics
from calgrid.statistics.paired import check_level, seed_interval
from calgrid.storage.schema import NUMBER_KEY, SEEDS

#: keys of a table: runs of one protocol and checkpoint
SECTION = ("protocol", "checkpoint")
#: coordinates of a place; the split follows from the shift
AXES = ("dataset", "backbone", "method", "calibrator", "fit_on", "shift", "severity", "metric")
PER_SEED = ["cell", "metric", *SECTION, "seed"]


def cell_runs(
    metrics: pd.DataFrame, places: pd.DataFrame, over: Literal["seed", "fit_seed"] = "seed"
) -> pd.DataFrame:
    """Value of each cell for each run seed, or for each calibrator seed.

    Seeds of the other kind are averaged first, then the places of a cell; seeds with missing places
    are dropped.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`; rows of the split
        ``val`` are ignored.
    places : one row per place, with the columns ``AXES`` and ``cell``, the index of its cell.
    over : column of the seeds of the result.

    Returns
    -------
    Frame with the columns cell, metric, protocol, checkpoint, seed, value, ci_low, ci_high (those
    of a single place), n_samples (of the smallest place).

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    """
    rows = metrics[metrics["split"] != "val"]
    for axis in ("dataset", "method", "metric"):  # before a large frame is validated and copied
        rows = rows[rows[axis].isin(places[axis])]
    frame = check_metrics(rows)[[*NUMBER_KEY, *SEEDS, "value", "ci_low", "ci_high", "n_samples"]]
    frame = frame.dropna(subset="value").astype(dict.fromkeys(WORDS, "str"))
    if over == "fit_seed":
        frame = frame.assign(seed=frame["fit_seed"])
    found = places.merge(frame, on=list(AXES))
    numbers = {name: (name, "mean") for name in ("value", "ci_low", "ci_high")}
    numbers["n_samples"] = ("n_samples", "min")
    place = list(dict.fromkeys([*PER_SEED, *AXES]))
    each = found.groupby(place, as_index=False).agg(**numbers)
    runs = each.groupby(PER_SEED, as_index=False).agg(**numbers, n_places=("value", "size"))
    runs = runs[runs["n_places"] == runs["cell"].map(places.groupby("cell").size())]
    runs.loc[runs["n_places"] > 1, ["ci_low", "ci_high"]] = float("nan")
    return runs.drop(columns="n_places")


def cell_means(runs: pd.DataFrame, level: float = 0.95) -> pd.DataFrame:
    """Mean of each cell over seeds.

    Parameters
    ----------
    runs : from :func:`cell_runs`.
    level : nominal coverage of the intervals, in (0, 1).

    Returns
    -------
    Frame with the columns protocol, checkpoint, cell, mean, std (over seeds, ddof 1), n_seeds, and
    ci_low, ci_high: the Student t interval of the mean over seeds, within the bounds of the metric;
    with one seed that of its run, if it has one.

    Raises
    ------
    ConfigError : for a ``level`` outside (0, 1).
    """
    check_level(level)
    means = runs.groupby([*SECTION, "cell", "metric"], as_index=False).agg(
        mean=("value", "mean"),
        std=("value", "std"),
        n_seeds=("value", "count"),
        ci_low=("ci_low", "mean"),
        ci_high=("ci_high", "mean"),
    )
    return seed_interval(means, level).drop(columns="metric")
