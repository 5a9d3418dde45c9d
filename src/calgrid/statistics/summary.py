"""Summary of the metrics of all runs over seeds."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from calgrid.components.metrics import find_metric
from calgrid.statistics.checks import WORDS, groups, keys_without
from calgrid.statistics.paired import seed_interval
from calgrid.statistics.pairs import RANKED, baseline_pairs, numbers, study_pairs, tests_of_pairs
from calgrid.statistics.published import match_published
from calgrid.statistics.verdicts import decided_by, of_metric
from calgrid.storage.schema import INTERVAL


@dataclass(frozen=True)
class Asked:
    """Options of a study for its metrics: keys of ``statistics`` in its configuration.

    Attributes
    ----------
    comparisons : questions, see :func:`calgrid.statistics.compare`, whose pairs are a family of
        their own; None tests against the baseline alone.
    """

    baseline: str = "ce"
    level: float = 0.95
    comparisons: Sequence[Mapping[str, Any]] | None = ()

    @classmethod
    def of(cls, statistics: Mapping[str, Any]) -> Self:
        """Options from a configuration; its other keys are options of scores."""
        names = [field.name for field in fields(cls) if field.name in statistics]
        return cls(**{name: statistics[name] for name in names})


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
    detectable : difference that would be found with a probability of 80 %; NaN of a metric that
        another one decides about;
    decided_by : metric whose p-values and verdict the row has: ``squared_ce`` for
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
    return summarise_study(metrics, Asked(baseline_method, level, None), published, resamples)[0]


def summarise_study(
    metrics: pd.DataFrame,
    asked: Asked,
    published: pd.DataFrame | None = None,
    resamples: pd.DataFrame | None = None,
    priors: pd.DataFrame | None = None,
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Summary (:func:`summarise`) and all tests (:func:`calgrid.statistics.pairs.tests_of_pairs`).

    ``priors`` are those of another study, see :func:`calgrid.statistics.pairs.study_priors`.
    """
    baseline, level = asked.baseline, asked.level
    found = numbers(metrics, resamples)
    cells, runs = found.cells, found.runs
    summary = pd.concat([cells, _over_seeds(runs, cells["metric"], level)], axis=1)
    # the interval of a term of an error ends no higher than that of the error
    wholes = {}
    for name in cells["metric"].unique():
        wholes[name] = find_metric(name, "the column metric").part_of or ""
    place, own = groups(cells, keys_without("metric")), cells["metric"].astype(str)
    whole = pd.MultiIndex.from_arrays([place, cells["metric"].map(wholes).astype(str)])
    high = summary["ci_high"].set_axis(pd.MultiIndex.from_arrays([place, own]))
    summary["ci_high"] = np.fmin(high.to_numpy(), high.reindex(whole).to_numpy())
    pairs = baseline_pairs(cells, baseline)
    if asked.comparisons is not None:
        pairs = study_pairs(cells, summary[["mean", *INTERVAL]], baseline, asked.comparisons)
    tests = tests_of_pairs(found, pairs, baseline, level, priors)
    summary = summary.assign(**_tested(summary, tests, baseline))
    summary = summary.astype(dict.fromkeys(WORDS, "str"))
    if published is None:
        summary = summary.assign(published=math.nan, published_source="")
    else:
        summary = summary.join(match_published(summary, published))
    return summary, tests.reset_index(drop=True)


def _tested(summary: pd.DataFrame, tests: pd.DataFrame, baseline: str) -> dict[str, ArrayLike]:
    """Columns of the summary from ``rank`` to ``verdict``."""
    losses = of_metric(summary["metric"], "sign").astype(float) * summary["mean"]  # NaN: no ranks
    is_baseline = summary["method"] == baseline
    against = (tests["against"] == baseline) & (tests["calibrator"] == tests["against_calibrator"])
    judged = tests[against].reindex(summary.index)
    of_itself = is_baseline & (summary["n_seeds"] > 0)
    return {
        "rank": losses.groupby(groups(summary, RANKED)).rank(method="average"),
        "diff_vs_baseline": judged["difference"].mask(of_itself, 0.0),
        "n_common": judged["n_seeds"].where(~is_baseline, summary["n_seeds"]).fillna(0).astype(int),
        **judged[["p_seeds", "p_value", "p_holm", "detectable"]],
        "decided_by": decided_by(summary["metric"].astype(str)),
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
