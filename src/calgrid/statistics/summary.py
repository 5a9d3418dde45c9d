"""Summary of the metrics of all runs over seeds."""

import math

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.components.metrics import find_metric
from calgrid.statistics.checks import WORDS, check_metrics, groups
from calgrid.statistics.holm import holm
from calgrid.statistics.paired import (
    average_fit_seeds,
    beyond_bias,
    check_level,
    paired_tests,
    reaches,
    seed_interval,
)
from calgrid.statistics.published import match_published
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS

Ids = NDArray[np.int64]
#: keys of a table column, within which rows are ranked
RANKED = [key for key in NUMBER_KEY if key not in ("method", "calibrator", "fit_on")]
#: keys of a family of tests against the baseline
FAMILY = [*RANKED, "calibrator"]


def summarise(
    metrics: pd.DataFrame,
    baseline_method: str = "ce",
    published: pd.DataFrame | None = None,
    level: float = 0.95,
) -> pd.DataFrame:
    """Mean, standard deviation, interval, rank and test against the baseline of every cell, over
    seeds.

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
    diff_vs_baseline : mean difference over common seeds; NaN if none;
    p_value : paired t-test over these seeds, 1 if all differences are zero; NaN for the baseline
        itself, with fewer than two seeds, or if all differences are equal but not zero (no variance
        to test against);
    p_holm : after Holm over the methods with the same calibrator in the same table column;
    verdict : ``better`` or ``worse`` than the baseline if p_holm < 1 - level, else ``tie`` (not
        significant). It holds for other trainings with the same test samples. Calibration errors
        may differ only by their bias, so they tie unless the bootstrap intervals of the runs
        exclude this too; empty for the baseline itself, without common seeds, and for metrics
        without ranks;
    verdict_best : the same against the best mean of the table column, after Holm over the column:
        ``best`` for that row itself, ``worse``, or ``tie``;
    published, published_source : see :func:`calgrid.statistics.match_published`.

    Raises
    ------
    DataError : a column is missing or a key is repeated. ConfigError : unknown metric or ``level``
        outside (0, 1).
    """
    check_level(level)
    rows = check_metrics(metrics)
    rows = rows.assign(cell=groups(rows, NUMBER_KEY)).sort_values(["cell", *SEEDS])
    keys = rows.drop_duplicates("cell")[list(NUMBER_KEY)].reset_index(drop=True)
    runs = _per_run(rows[["cell", *SEEDS, "value", *INTERVAL]])
    summary = pd.concat([keys, _over_seeds(runs, keys["metric"], level)], axis=1)
    summary = summary.assign(**_tested(summary, runs, baseline_method, 1 - level)).astype(
        dict.fromkeys(WORDS, "str")
    )
    if published is None:
        return summary.assign(published=math.nan, published_source="")
    return summary.join(match_published(summary, published))


def _tested(
    summary: pd.DataFrame, runs: pd.DataFrame, baseline_method: str, alpha: float
) -> dict[str, ArrayLike]:
    """Columns of the summary from ``rank`` to ``verdict_best``."""
    column, family = groups(summary, RANKED), groups(summary, FAMILY)
    losses = _signs(summary) * summary["mean"]  # NaN where the metric ranks nobody
    is_baseline = (summary["method"] == baseline_method).to_numpy()
    tests = _tests(runs, _counterparts(summary, is_baseline), len(summary))
    # the baseline itself is not tested
    p_value = tests["p_value"].mask(is_baseline)
    p_holm = holm(p_value, family)
    verdicts = _verdicts(summary, tests, pd.Series(p_holm), alpha)
    return {
        "rank": losses.groupby(column).rank(method="average"),
        "diff_vs_baseline": tests["difference"],
        "p_value": p_value,
        "p_holm": p_holm,
        "verdict": pd.Series(verdicts).mask(is_baseline, ""),
        "verdict_best": _against_best(summary, runs, losses, column, alpha),
    }


def _per_run(numbers: pd.DataFrame) -> pd.DataFrame:
    """One row for each cell and run, sorted."""
    if numbers.duplicated(["cell", "seed"]).any():
        return average_fit_seeds(numbers, ["cell", "seed"])
    return numbers.assign(std_fit=math.nan, n_fits=numbers["value"].notna().astype(int))


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


def _signs(summary: pd.DataFrame) -> pd.Series:
    return (
        summary["metric"]
        .map({name: _sign(name) for name in summary["metric"].unique()})
        .astype(float)
    )


def _sign(metric: str) -> float:
    """1 if lower is better, -1 if higher is better, NaN for metrics without ranks."""
    return {True: 1.0, False: -1.0, None: math.nan}[
        find_metric(metric, "the column metric").lower_is_better
    ]


def _counterparts(summary: pd.DataFrame, is_baseline: NDArray[np.bool_]) -> Ids:
    """Row (n,) of the baseline with the same other keys as each row; -1 if there is none."""
    place = groups(summary, [key for key in NUMBER_KEY if key != "method"])
    rows = pd.Series(range(len(summary))).where(is_baseline, -1)
    return rows.groupby(place).transform("max").to_numpy()


def _tests(runs: pd.DataFrame, against: Ids, n_cells: int) -> pd.DataFrame:
    """Paired tests of each cell (n_cells rows) with the cell ``against``, over common seeds."""
    own = reaches(runs)[["cell", "seed", "value", "below", "above"]]
    pairs = own.assign(other=against[own["cell"]]).merge(
        own, left_on=["other", "seed"], right_on=["cell", "seed"], suffixes=("", "_against")
    )
    return paired_tests(pairs, ["cell"]).set_index("cell").reindex(range(n_cells))


def _verdicts(
    summary: pd.DataFrame, tests: pd.DataFrame, p_holm: pd.Series, alpha: float
) -> np.ndarray:
    """``better``, ``worse`` or ``tie`` by sign and significance of the difference; empty without a
    difference.
    """
    loss = _signs(summary) * tests["difference"]
    found = (p_holm < alpha) & beyond_bias(tests, summary["metric"])
    rules = {"": loss.isna(), "better": found & (loss < 0), "worse": found & (loss > 0)}
    return np.select([on.to_numpy() for on in rules.values()], list(rules), "tie")


def _against_best(
    summary: pd.DataFrame, runs: pd.DataFrame, losses: pd.Series, column: Ids, alpha: float
) -> pd.Series:
    """Verdict of each row against the row with the best mean of its table column, by paired tests
    over seeds.
    """
    best = losses.dropna().groupby(column[losses.notna()]).idxmin()
    best_of = np.full(len(summary), -1)
    best_of[best.index] = best
    tests = _tests(runs, best_of[column], len(summary))
    is_best = summary.index.isin(best)
    p_holm = holm(tests["p_value"].mask(is_best), column)
    verdicts = pd.Series(_verdicts(summary, tests, pd.Series(p_holm), alpha), index=summary.index)
    return verdicts.mask(is_best, "best")
