"""Summary of the metrics of all runs over seeds."""

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.components.metrics import find_metric
from calgrid.statistics.checks import WORDS, check_metrics, groups, keys_without
from calgrid.statistics.paired import (
    Draws,
    average_fit_seeds,
    check_level,
    paired_tests,
    run_draws,
    seed_interval,
)
from calgrid.statistics.published import match_published
from calgrid.statistics.verdicts import decided_by, judge_all, of_metric
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS

Ids = NDArray[np.int64]
#: keys of a table column, within which rows are ranked
RANKED = keys_without("method", "calibrator", "fit_on")
#: keys of a family of tests against the baseline
FAMILY = [*RANKED, "calibrator"]


def summarise(
    metrics: pd.DataFrame,
    baseline_method: str = "ce",
    published: pd.DataFrame | None = None,
    level: float = 0.95,
    resamples: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Mean, standard deviation, interval, rank and verdict against the baseline of every cell.

    Calibrator seeds are averaged within a run first: they are not independent runs. Missing values
    are not imputed; ``n_seeds`` is the number of runs of a row.

    Parameters
    ----------
    metrics : tidy frame with the columns protocol, dataset, backbone, method, seed, checkpoint,
        calibrator, fit_on, fit_seed, split, shift, severity, metric, value, ci_low, ci_high.
    baseline_method : method with which the others are compared, with the same other keys.
    published : published numbers, see :func:`calgrid.statistics.match_published`.
    level : nominal coverage of all intervals, in (0, 1), including the bootstrap intervals in
        ``metrics``.
    resamples : the same numbers on resamples of the test samples that all runs share, with the key
        columns and seeds, ``draws`` and ``pairs``: see ``resamples.parquet`` in docs/files.md.
        Numbers without resamples get no verdict.

    Returns
    -------
    Frame with one row for each combination of the key columns without seeds, sorted, and
    mean, std (ddof 1, NaN for one seed), n_seeds;
    std_fit, n_fits : standard deviation over the seeds of a randomly initialised calibrator (ddof
        1, mean over run seeds; NaN for one seed), and their number;
    std_test : standard deviation of a single run over test samples, from the width of the bootstrap
        intervals of the runs (root mean square) under normality; NaN without intervals. It is not
        part of ``std``, which is over seeds on one test set;
    ci_low, ci_high : Student t interval of the mean over seeds, within the bounds of the metric;
        for one seed the bootstrap interval of that run (mean of the limits over calibrator seeds);
    test_low, test_high : bootstrap interval over test samples, mean of the limits over the runs;
    rank : among methods and calibrators of the same table column, 1 = best, ties averaged; NaN for
        ``ece_null``;
    diff_vs_baseline : mean difference over common seeds; NaN if none; n_common : their number;
    p_seeds : paired t-test over these seeds, for these test samples alone; NaN with fewer than two
        seeds, or if all differences are equal but not zero;
    p_value : by the rule of :mod:`calgrid.statistics.verdicts`, over seeds and test samples; NaN
        without resamples;
    p_holm : after Holm over the methods with the same calibrator in the same table column;
    detectable : difference that would be found with a probability of 80 %, in the unit of
        ``decided_by``;
    decided_by : metric whose p-values, ``detectable`` and verdict the row has: ``squared_ce`` for
        calibration errors of the top label; empty for metrics without verdicts;
    verdict : ``better`` or ``worse`` than the baseline, ``equivalent``, ``tie`` or ``no verdict``,
        see :func:`calgrid.statistics.verdicts.judge`; empty for the baseline itself and without
        common seeds;
    published, published_source : see :func:`calgrid.statistics.match_published`.

    Raises
    ------
    DataError : a column is missing or a key is repeated.
    ConfigError : unknown metric or ``level`` outside (0, 1).
    """
    check_level(level)
    rows = check_metrics(metrics)
    rows = rows.assign(cell=groups(rows, NUMBER_KEY)).sort_values(["cell", *SEEDS])
    keys = rows.drop_duplicates("cell")[list(NUMBER_KEY)].reset_index(drop=True)
    runs = rows[["cell", *SEEDS, "value", *INTERVAL, "n_samples"]]
    if runs.duplicated(["cell", "seed"]).any():
        runs = average_fit_seeds(runs, ["cell", "seed"])
    else:
        runs = runs.assign(std_fit=math.nan, n_fits=runs["value"].notna().astype(int))
    summary = pd.concat([keys, _over_seeds(runs, keys["metric"], level)], axis=1)
    summary["ci_high"] = _capped(summary)
    draws = run_draws(
        runs[["cell", "seed"]].join(keys, on="cell"), resamples, (*NUMBER_KEY, "seed")
    )
    tested = _tested(summary, runs, draws, baseline_method, level)
    summary = summary.assign(**tested).astype(dict.fromkeys(WORDS, "str"))
    if published is None:
        return summary.assign(published=math.nan, published_source="")
    return summary.join(match_published(summary, published))


def _tested(
    summary: pd.DataFrame, runs: pd.DataFrame, draws: Draws, baseline_method: str, level: float
) -> dict[str, ArrayLike]:
    """Columns of the summary from ``rank`` to ``verdict``."""
    losses = of_metric(summary["metric"], "sign").astype(float) * summary["mean"]  # NaN: no ranks
    is_baseline = (summary["method"] == baseline_method).to_numpy()
    tests = _tests(runs, _counterparts(summary, is_baseline), draws, len(summary))
    tests = tests.assign(metric=summary["metric"].astype(str))
    compared = (tests["difference"].notna() & ~is_baseline).to_numpy()
    places = groups(summary, keys_without("metric"))
    families = groups(summary, FAMILY)
    judged = judge_all(tests[compared], places[compared], families[compared], level)
    judged = judged.reindex(tests.index)
    return {
        "rank": losses.groupby(groups(summary, RANKED)).rank(method="average"),
        "diff_vs_baseline": tests["difference"],
        "n_common": tests["n_seeds"].astype(int),
        **judged[["p_seeds", "p_value", "p_holm", "detectable"]],
        "decided_by": decided_by(tests["metric"]),
        "verdict": judged["verdict"].fillna(""),
    }


def _over_seeds(runs: pd.DataFrame, metric: pd.Series, level: float) -> pd.DataFrame:
    """Mean, standard deviation and intervals of each cell, one row per cell."""
    reach = (runs["ci_high"] - runs["ci_low"]) / (2 * special.ndtri((1 + level) / 2))
    grouped = runs.assign(variance_test=reach**2).groupby("cell")
    summary = grouped.agg(
        mean=("value", "mean"),
        std=("value", "std"),
        n_seeds=("value", "count"),
        std_fit=("std_fit", "mean"),
        n_fits=("n_fits", "max"),
        std_test=("variance_test", "mean"),
        ci_low=("ci_low", "mean"),
        ci_high=("ci_high", "mean"),
    ).reset_index(drop=True)
    summary = summary.assign(
        std_test=np.sqrt(summary["std_test"]),
        test_low=summary["ci_low"],
        test_high=summary["ci_high"],
    )
    return seed_interval(summary.assign(metric=metric), level).drop(columns="metric")


def _capped(summary: pd.DataFrame) -> ArrayLike:
    """Upper ends of all intervals; that of a term of an error is at most that of the error."""
    place = groups(summary, keys_without("metric"))
    wholes = {}
    for name in summary["metric"].unique():
        wholes[name] = find_metric(name, "the column metric").part_of or ""
    own, wanted = summary["metric"].astype(str), summary["metric"].map(wholes).astype(str)
    high = summary["ci_high"].set_axis(pd.MultiIndex.from_arrays([place, own]))
    whole = high.reindex(pd.MultiIndex.from_arrays([place, wanted]))
    return np.fmin(high.to_numpy(), whole.to_numpy())


def _counterparts(summary: pd.DataFrame, is_baseline: NDArray[np.bool_]) -> Ids:
    """Row (n,) of the baseline with the same other keys as each row; -1 if there is none."""
    place = groups(summary, keys_without("method"))
    rows = pd.Series(range(len(summary))).where(is_baseline, -1)
    return rows.groupby(place).transform("max").to_numpy()


def _tests(runs: pd.DataFrame, against: Ids, draws: Draws, n_cells: int) -> pd.DataFrame:
    """Paired differences of each cell (n_cells rows) to the cell ``against``, over common seeds."""
    own = runs[["cell", "seed"]].assign(run=np.arange(len(runs)))
    other = own.rename(columns={"cell": "other"})
    pairs = own.assign(other=against[own["cell"]]).merge(
        other, on=["other", "seed"], suffixes=("", "_against")
    )
    tests = paired_tests(pairs, ["cell"], runs, draws).set_index("cell")
    return tests.reindex(range(n_cells)).fillna({"n_seeds": 0})
