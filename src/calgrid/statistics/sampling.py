"""Comparison of methods on the same test samples: variance due to test samples and to seeds."""

import functools
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calgrid.components.metrics import (
    check_computed,
    find_metric,
    find_ranking_metric,
    plugin_metrics,
)
from calgrid.errors import DataError
from calgrid.metrics import Output
from calgrid.metrics.intervals import (
    DECIDING_RESAMPLES,
    Resampled,
    averaged,
    difference_interval,
    resampled,
    resampled_means,
    sampling_variance,
    tails_of,
)
from calgrid.metrics.table import Metric
from calgrid.statistics.checks import groups
from calgrid.statistics.paired import student_reach
from calgrid.statistics.verdicts import decided_by, judge_all, seed_prior

Floats = NDArray[np.float64]

#: metrics of :func:`calgrid.metrics.intervals.resampled_means`
MEANS = {"accuracy", "balanced_accuracy", "top5", "nll", "brier", "squared_ce"}


def paired_bootstrap(
    runs: Mapping[str, Sequence[ArrayLike | Output]],
    labels: ArrayLike,
    *,
    metrics: Sequence[str] = ("accuracy", "nll", "brier", "squared_ce"),
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
    of_runs: bool = False,
) -> pd.DataFrame:
    """Difference of every pair of methods on the same test samples, with an interval over samples
    and seeds.

    All runs are scored on the same resamples of the test samples; runs of a method are averaged in
    each resample.

    Parameters
    ----------
    runs : for each method, the baseline first, its runs, probabilities (N, K) or outputs of
        :func:`calgrid.metrics.from_logits`, one per seed; runs at the same position
        are paired, so all methods have the same number. labels : integers (N,).
    metrics : identifiers of labelled metrics except ``ece_null``, including plugin metrics.
    n_resamples, level, seed, n_bins : as in :func:`calgrid.metrics.bootstrap`.
    of_runs : whether the question is about these networks, not about methods: only then do methods
        with one run have a verdict, over test samples.

    Returns
    -------
    One row for each pair of methods and metric: method, against, metric, n_seeds and
    difference : difference of the means over seeds, method - against;
    ci_low, ci_high : interval of the difference. With one seed it is over test samples, for these
        runs only; with several over test samples and seeds. By the rule of
        :mod:`calgrid.statistics.verdicts`; for metrics that do not decide themselves the root of
        the summed squares of the half-widths of :func:`calgrid.metrics.bootstrap_difference` and of
        the Student t interval over seeds; NaN for ``mce``;
    std_test : standard deviation of the difference over resamples of the test samples (ddof 1);
    std_seed : standard deviation over seeds of the difference of paired runs on all test samples
        (ddof 1; NaN for one seed);
    p_seeds, p_value, p_holm, detectable, decided_by, verdict : as in
        :func:`calgrid.statistics.summarise`; the family has all pairs with the same metric, and the
        rule uses the first 200 resamples.

    Raises
    ------
    DataError : as in :func:`calgrid.metrics.ece`; fewer than two methods, a method without runs, or
        different numbers of runs.
    ConfigError : as in :func:`calgrid.metrics.bootstrap`; unknown metric or one without ranks.

    Source: intervals over test samples, see :mod:`calgrid.metrics.intervals`; sum of squared
    half-widths, Zou and Donner, Statistics in Medicine 2008. ``benchmarks/coverage.md`` has their
    coverage.
    """
    tails_of(level)  # refuses one outside (0, 1)
    if len(runs) < 2 or 0 in map(len, runs.values()):
        raise DataError("runs must hold at least two methods with at least one run each.")
    counts = {method: len(each) for method, each in runs.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{method} {count}" for method, count in counts.items())
        raise DataError(
            f"Methods are compared seed by seed, but have different numbers of runs ({listed}); "
            "give one of each seed, in the same order."
        )
    for method, each in runs.items():
        for first, second in itertools.combinations(each, 2):
            if np.array_equal(np.asarray(first), np.asarray(second)):
                raise DataError(
                    f"Two runs of {method} have the same numbers, so they are no different seeds; "
                    "give each run once."
                )
    shape = np.shape(next(iter(runs.values()))[0])
    for name in metrics:
        find_ranking_metric(name, "metrics")
        check_computed(name, shape)
    options: dict[str, Any] = {"n_resamples": n_resamples, "seed": seed, "n_bins": n_bins}
    resample: Any = resampled_means
    if not {*metrics} <= MEANS:
        resample = functools.partial(resampled, further=plugin_metrics(metrics))
    models, n_test = {}, shape[0]
    for method, predictions in runs.items():
        models[method] = [resample(probs, labels, **options) for probs in predictions]
    return _judged(models, itertools.combinations(runs, 2), metrics, n_test, level, of_runs)


def against_one(
    models: Mapping[str, Resampled], against: str, metric: str, n_test: int, level: float = 0.95
) -> pd.DataFrame:
    """Verdicts on single models against a reference model, on the same resamples of the test
    samples.

    Parameters
    ----------
    models : by name, with all labelled metrics. against : name of the one.
    metric : with ranks. n_test : number of test samples. level : as in :func:`paired_bootstrap`.

    Returns
    -------
    One row for each other model, in their order, with the columns of :func:`paired_bootstrap`; the
    family has all of them.
    """
    single = {name: [model] for name, model in models.items()}
    pairs = [(name, against) for name in models if name != against]
    return _judged(single, pairs, [metric], n_test, level, of_runs=True)


def _judged(
    models: Mapping[str, Sequence[Resampled]],
    pairs: Iterable[tuple[str, str]],
    metrics: Sequence[str],
    n_test: int,
    level: float,
    of_runs: bool,
) -> pd.DataFrame:
    """Differences of pairs of methods in each metric, with their verdicts."""
    deciding = filter(None, decided_by(pd.Series(list(metrics), dtype=str)))
    needed = dict.fromkeys([*metrics, *deciding])
    by_seed, means, rows = {}, {}, []
    for method, of_method in models.items():
        by_seed[method] = pd.DataFrame([model.values for model in of_method])
        means[method] = averaged(of_method)
    for method, against in pairs:
        differences = by_seed[method] - by_seed[against]
        both = means[method], means[against]
        for name in needed:
            each = differences[name].to_numpy(float)
            found = _difference(find_metric(name), each, *both, level, n_test)
            rows.append({"method": method, "against": against, "metric": name, **found})
    tests = pd.DataFrame(rows)
    first = tests["method"] == tests["method"].iloc[0]
    known = seed_prior(tests[first], tests.loc[first, "metric"])
    prior = known.groupby(tests["metric"]).first()
    tests = tests.assign(prior=tests["metric"].map(prior))
    places = groups(tests, ["method", "against"])
    found = judge_all(tests, places, tests["metric"], level, of_runs)
    found = found[found["metric"].isin(metrics)].reset_index(drop=True)
    return found.drop(columns=["df_test", "n_test", "prior"])


def _difference(
    metric: Metric, by_seed: Floats, first: Resampled, second: Resampled, level: float, n_test: int
) -> dict[str, float | int | str]:
    """Difference of two means over runs from its values in each seed, with its variances."""
    drawn = first.drawn[metric.id] - second.drawn[metric.id]
    pairs: Floats | float = 0.0
    if metric.interval == "unbiased":
        pairs = first.noise[metric.id] - second.noise[metric.id]
        pairs = pairs[:DECIDING_RESAMPLES]
    difference, count = float(by_seed.mean()), len(by_seed)
    std_seed = float(by_seed.std(ddof=1)) if count > 1 else math.nan
    over_seeds = float(student_reach(std_seed, count, level)) if count > 1 else 0.0
    low, high = difference_interval(metric, first, second, tails_of(level))
    deciding = drawn[:DECIDING_RESAMPLES]
    # the rule takes as many resamples for granted as it uses at most
    are_few = len(deciding) < min(n_test, DECIDING_RESAMPLES)
    return {
        "n_seeds": count,
        "difference": difference,
        "ci_low": difference - math.hypot(low - difference, over_seeds),
        "ci_high": difference + math.hypot(high - difference, over_seeds),
        "std_test": math.sqrt(float(sampling_variance(deciding, pairs))),
        "std_seed": std_seed,
        "df_test": len(deciding) - 1 if are_few else math.nan,
        "n_test": n_test,
    }
