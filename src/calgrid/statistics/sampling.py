"""Methods compared on the same test samples: how much of a difference may be due to them, and how much to the seeds."""

import itertools
import math
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import DataError, unknown_id
from calgrid.metrics import check_probabilities, evaluate, resampled_metrics
from calgrid.metrics.table import LABELLED
from calgrid.statistics._paired import check_level

Floats = NDArray[np.float64]
#: values of each seed (S,), and in each resample their mean over seeds (R,)
_Scores = tuple[Floats, Floats]


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
    """Difference of every two methods on the same test samples, with test-sampling and seed variance apart.

    Every run is scored on the same resamples of the test samples; runs of a method are averaged in each resample.

    Parameters
    ----------
    runs : for each method its runs, probabilities (N, K) each, one a seed; run s of one method belongs to run s of the
        others, so that all have equally many. labels : integers (N,).
    metrics : identifiers of labelled metrics that have an interval.
    n_resamples, level, seed, n_bins : as in :func:`calgrid.metrics.bootstrap`.

    Returns
    -------
    One row for each pair of methods and metric: method, against, metric, n_seeds and
    difference : of the means over seeds, method - against;
    ci_low, ci_high : percentile interval over test samples, for these very runs;
    std_test : deviation of the difference over resamples of the test samples (ddof 1);
    std_seed : deviation over seeds of the difference of one run of each on all test samples (ddof 1; NaN for one
        seed);
    verdict : ``lower`` or ``higher`` where the interval excludes 0, else ``tie``. It speaks of these runs on other test
        samples; whether other seeds would agree is read from ``std_seed``.

    Raises
    ------
    DataError : as in :func:`calgrid.metrics.ece`; with fewer than two methods, without a run of one, or with more runs
        of one than of another. ConfigError : as in :func:`calgrid.metrics.bootstrap`; for an unknown metric or one
        without an interval.
    """
    check_level(level)
    if len(runs) < 2 or not all(len(each) for each in runs.values()):
        raise DataError("runs must hold at least two methods with at least one run each.")
    counts = {method: len(each) for method, each in runs.items()}
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{method} {count}" for method, count in counts.items())
        raise DataError(
            f"Methods are compared seed by seed, but have different numbers of runs ({listed}): give one of each seed, "
            "in the same order."
        )
    usable = [name for name, metric in LABELLED.items() if metric.interval != "none"]
    for name in metrics:
        if name not in usable:
            raise unknown_id("metric", name, usable, "metrics")
    options = {"n_resamples": n_resamples, "seed": seed, "n_bins": n_bins}
    scores = {method: _scores(each, labels, metrics, options) for method, each in runs.items()}
    rows = [
        {"method": method, "against": against, "metric": metric, **_difference(*pair, level)}
        for method, against in itertools.combinations(runs, 2)
        for metric, *pair in ((name, scores[method][name], scores[against][name]) for name in metrics)
    ]
    return pd.DataFrame(rows)


def _scores(
    runs: Sequence[ArrayLike], labels: ArrayLike, metrics: Sequence[str], options: Mapping[str, int]
) -> dict[str, _Scores]:
    values, draws = [], []
    for probs in runs:
        predictions = check_probabilities(probs, labels)
        found = evaluate(predictions, predictions.labels, n_bins=options["n_bins"])
        resampled = resampled_metrics(predictions, predictions.labels, **options)
        values.append([found[name] for name in metrics])
        draws.append({name: resampled[name] for name in metrics})
    per_seed = dict(zip(metrics, np.array(values).T, strict=True))
    return {name: (per_seed[name], np.mean([draw[name] for draw in draws], axis=0)) for name in metrics}


def _difference(first: _Scores, second: _Scores, level: float) -> dict[str, float | int | str]:
    drawn = first[1] - second[1]
    drawn = drawn[~np.isnan(drawn)]
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2]) if len(drawn) else (math.nan, math.nan)
    by_seed = first[0] - second[0]
    return {
        "n_seeds": len(by_seed),
        "difference": float(first[0].mean() - second[0].mean()),
        "ci_low": float(low),
        "ci_high": float(high),
        "std_test": float(drawn.std(ddof=1)) if len(drawn) > 1 else math.nan,
        "std_seed": float(by_seed.std(ddof=1)) if len(by_seed) > 1 else math.nan,
        "verdict": "lower" if high < 0 else "higher" if low > 0 else "tie",
    }
