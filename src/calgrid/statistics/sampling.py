"""Comparison of methods on the same test samples: variance due to test samples and to seeds."""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calgrid.components.metrics import find_metric, find_ranking_metric, plugin_metrics
from calgrid.errors import DataError
from calgrid.metrics.intervals import Resampled, averaged, difference_interval, resampled
from calgrid.metrics.table import Metric
from calgrid.statistics.paired import check_level, student_reach

Floats = NDArray[np.float64]
#: verdict on a metric without an interval
NO_VERDICT = "no verdict"


class _Scores(NamedTuple):
    """Values of each metric in each seed, (S,), and their means over seeds with resamples."""

    by_seed: dict[str, Floats]
    mean: Resampled


def paired_bootstrap(
    runs: Mapping[str, Sequence[ArrayLike]],
    labels: ArrayLike,
    *,
    metrics: Sequence[str] = ("accuracy", "nll", "brier", "ece_debiased"),
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
) -> pd.DataFrame:
    """Difference of every pair of methods on the same test samples, with an interval over samples
    and seeds.

    All runs are scored on the same resamples of the test samples; runs of a method are averaged in
    each resample.

    Parameters
    ----------
    runs : for each method its runs, probabilities (N, K), one per seed; runs at the same position
        are paired, so all methods have the same number. labels : integers (N,).
    metrics : identifiers of labelled metrics except ``ece_null``, including plugin metrics.
    n_resamples, level, seed, n_bins : as in :func:`calgrid.metrics.bootstrap`.

    Returns
    -------
    One row for each pair of methods and metric: method, against, metric, n_seeds and
    difference : difference of the means over seeds, method - against;
    ci_low, ci_high : interval of the difference; NaN for ``mce``. With one seed it is over test
        samples, for these runs only. With several it is over test samples and seeds: the root of
        the summed squares of the half-widths of the interval for these runs and of the Student t
        interval over seeds;
    std_test : standard deviation of the difference over resamples of the test samples (ddof 1);
    std_seed : standard deviation over seeds of the difference of paired runs on all test samples
        (ddof 1; NaN for one seed);
    verdict : ``lower`` or ``higher`` if the interval excludes 0, else ``tie``; ``no verdict``
        without an interval.

    Raises
    ------
    DataError : as in :func:`calgrid.metrics.ece`; fewer than two methods, a method without runs, or
        different numbers of runs. ConfigError : as in :func:`calgrid.metrics.bootstrap`; unknown
        metric or one without ranks.

    Source: intervals over test samples, see :mod:`calgrid.metrics.intervals`; sum of squared
    half-widths, Zou and Donner, Statistics in Medicine 2008. ``benchmarks/coverage.md`` has their
    coverage.
    """
    check_level(level)
    _check_runs(runs)
    for name in metrics:
        find_ranking_metric(name, "metrics")
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "n_bins": n_bins}
    options["further"] = plugin_metrics(metrics)
    scores = {
        method: _scores([resampled(probs, labels, **options) for probs in each])
        for method, each in runs.items()
    }
    rows = [
        {
            "method": method,
            "against": against,
            "metric": name,
            **_difference(find_metric(name), *pair, level),
        }
        for method, against in itertools.combinations(runs, 2)
        for pair in [(scores[method], scores[against])]
        for name in metrics
    ]
    return pd.DataFrame(rows)


def _check_runs(runs: Mapping[str, Sequence[ArrayLike]]) -> None:
    if len(runs) < 2 or not all(len(each) for each in runs.values()):
        raise DataError("runs must hold at least two methods with at least one run each.")
    counts = {method: len(each) for method, each in runs.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{method} {count}" for method, count in counts.items())
        raise DataError(
            f"Methods are compared seed by seed, but have different numbers of runs ({listed}): "
            f"give one of each seed, "
            "in the same order."
        )


def _scores(models: Sequence[Resampled]) -> _Scores:
    return _Scores(
        {name: np.array([one.values[name] for one in models]) for name in models[0].values},
        averaged(models),
    )


def _difference(
    metric: Metric, first: _Scores, second: _Scores, level: float
) -> dict[str, float | int | str]:
    by_seed = first.by_seed[metric.id] - second.by_seed[metric.id]
    drawn = first.mean.drawn[metric.id] - second.mean.drawn[metric.id]
    drawn = drawn[~np.isnan(drawn)]
    difference, count = float(by_seed.mean()), len(by_seed)
    std_seed = float(by_seed.std(ddof=1)) if count > 1 else math.nan
    over_seeds = float(student_reach(std_seed, count, level)) if count > 1 else 0.0
    ends = difference_interval(metric, first.mean, second.mean, ((1 - level) / 2, (1 + level) / 2))
    below, above = (math.hypot(end - difference, over_seeds) for end in ends)
    # with one seed the exact ends, without rounding
    low, high = (difference - below, difference + above) if over_seeds else ends
    return {
        "n_seeds": count,
        "difference": difference,
        "ci_low": low,
        "ci_high": high,
        "std_test": float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan,
        "std_seed": std_seed,
        "verdict": _verdict(low, high),
    }


def _verdict(low: float, high: float) -> str:
    if math.isnan(low):
        return NO_VERDICT
    return "lower" if high < 0 else "higher" if low > 0 else "tie"
