"""Bootstrap intervals over test samples, of one model and of the difference of two on the same samples.

Which interval a metric gets stands in ``METRICS``. With v the value, q the quantiles of the resampled values and m
their mean:

``percentile`` [q_low, q_high] : accuracy, top-5, NLL, Brier score, failure prediction and out-of-distribution metrics;
    for two models of the resampled differences.
``centred`` [v + m - q_high, v + m - q_low] : the split of the Brier score, corrected for the bias of one sampling but
    not for that of the second one in a resample, which m takes out; for two models the same of the difference.
``guarded`` [v - c_high, v + m - q_low] : calibration errors. They are sizes of signed gaps, and c are the amounts
    by which chance may have made them too large. For binned errors they are what resampling adds to gaps: with its sign
    in a bin whose gap is more than 3 standard deviations from 0, at its full size in the others, which chance may
    explain (the directional derivative of the error with an estimated set of kinks: Fang and Santos, Review of Economic
    Studies 2019; Andrews and Soares, Econometrica 2010). For the others they are the sizes of all that resampling adds,
    the triangle inequality. So the lower end is 0 where chance alone may explain the value. The upper end of ``ks`` is
    at least as far from v as the lower one: it is the largest of many sums, of which resamples often find a larger one,
    and without this 8 % of the intervals of 500 samples ended below the truth.
    The ends of a difference are d -+ sqrt(r^2 + s^2 - 2 c r s), r and s the reaches of both intervals towards it, c
    the correlation of resampled values (Zou and Donner, Statistics in Medicine 2008): a bias that one model has and the
    other has not makes no winner. Only a negative c counts, as between an over- and an under-confident model (without
    it 83 to 87 % of the intervals of ``rmsce`` and ``ece`` held their difference); with a positive one too few held
    that of a calibrated and a slightly over-confident model (87 % of ``aece``, 83 % of ``o_ece``).
    A debiased error has the interval of its plain one. Both estimate the same quantity, and what the correction leaves
    of the bias (two fifths are gone at perfect calibration, all of it far from there) is as hard to bound.
``none`` : ``ece_null`` is no estimate from the labels; of ``mce``, which its smallest bin decides, we found none.

Intervals are cut to the range of the quantity, as an estimate and its reflection may lie outside. ``smce`` costs a
dynamic programme a resample, a metric of your own (``further``) a call of its function: they get the first 200 of them.
A metric that does not exist in every resample (no error was drawn) is taken over those in which it does. A single
sample has no intervals.

``benchmarks/coverage.md`` shows how often these intervals hold the truth, and percentile, basic, BCa (Efron, JASA 1987)
and normal intervals, which fail near calibration: a percentile interval of a plain error never holds 0, and keeps the
difference of two biases in that of two models.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import ConfigError
from calgrid.metrics import kernel
from calgrid.metrics._estimators import (
    Draws,
    function_estimator,
    labelled_estimators,
    ood_estimator,
    smooth_estimator,
    soft_estimator,
)
from calgrid.metrics._inputs import Probabilities, check_bins, check_probabilities
from calgrid.metrics.evaluation import ood_scores
from calgrid.metrics.table import LABELLED, OOD, SOFT, Metric

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Intervals = dict[str, Interval]
NO_INTERVAL: Interval = (math.nan, math.nan)

#: resamples of the smooth calibration error, each of which costs a dynamic programme, and of metrics of your own
SMOOTH_RESAMPLES = 200

#: entries of an array with a row a resample: few enough for a processor cache, and a bound on memory whatever N
BLOCK_ENTRIES = 2**18
#: but no fewer rows than this, for a matrix product has to read all probabilities once a block
MIN_ROWS = 16


def bootstrap(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
    further: Iterable[Metric] = (),
) -> Intervals:
    """Interval (low, high) of every labelled metric by identifier; NaN where there is none: see the module.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,).
    n_resamples : number of resamples. level : nominal coverage, in (0, 1).
    seed : of the resamples, which depend on it and on N alone: models on one test set can be compared in pairs.
    n_bins : number of confidence bins.
    further : labelled metrics of your own; ``guarded`` intervals are those of calgrid's alone.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`; ConfigError for a ``level`` or ``n_resamples`` out of
        range.
    """
    tails, further = tails_of(level), list(further)
    drawn = [metric for metric in further if metric.interval != "none"]
    found = resampled(probs, labels, n_resamples=n_resamples, seed=seed, n_bins=n_bins, further=drawn)
    metrics = (*LABELLED.values(), *further)
    single = np.size(labels) < 2
    return {metric.id: NO_INTERVAL if single else interval(metric, found, tails) for metric in metrics}


def bootstrap_difference(
    probs: Probabilities, other_probs: Probabilities, labels: ArrayLike, *, level: float = 0.95, **options: Any
) -> Intervals:
    """Interval (low, high) of metric(probs) - metric(other_probs), both on the same resamples: see the module.

    Parameters
    ----------
    probs, other_probs : probabilities (N, K) of two models for the same samples. labels : integers (N,).
    level, options : as in :func:`bootstrap`, as are errors and missing intervals.
    """
    first, second = (resampled(each, labels, **options) for each in (probs, other_probs))
    tails = tails_of(level)
    if np.size(labels) < 2:
        return dict.fromkeys(LABELLED, NO_INTERVAL)
    return {name: difference_interval(metric, first, second, tails) for name, metric in LABELLED.items()}


def bootstrap_ood(
    probs_id: ArrayLike, probs_ood: ArrayLike, *, n_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> Intervals:
    """Percentile interval (low, high) of every out-of-distribution metric; both sets are resampled, independently.

    Other parameters, errors and missing intervals as in :func:`bootstrap`.

    Parameters
    ----------
    probs_id, probs_ood : probabilities (N, K) and (M, K) of one model.
    """
    scores = ood_scores(probs_id, probs_ood)
    estimators = {score: ood_estimator(*pair) for score, pair in scores.items()}
    n, m = map(len, next(iter(scores.values())))
    rows = _rows(max(n, m))
    pairs = zip(
        resample_weights(n, n_resamples, seed, rows=rows),
        resample_weights(m, n_resamples, seed, stream=1, rows=rows),
        strict=True,
    )
    blocks = [{score: estimate(*pair) for score, estimate in estimators.items()} for pair in pairs]
    tails = tails_of(level)
    if min(n, m) < 2:
        return dict.fromkeys(OOD, NO_INTERVAL)
    return {
        name: _percentile(np.concatenate([block[metric.score][metric.function] for block in blocks]), tails)
        for name, metric in OOD.items()
    }


def bootstrap_soft(
    probs: ArrayLike,
    distribution: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
) -> Intervals:
    """Bootstrap interval (low, high) of every soft metric by identifier, over images; NaN for a single image.

    Parameters
    ----------
    probs, distribution : as in :func:`calgrid.metrics.evaluate_soft`. Others and errors as in :func:`bootstrap`.
    """
    estimate, tails = soft_estimator(probs, distribution, n_bins), tails_of(level)
    n = len(np.asarray(probs))
    draws = _join([estimate(weights) for weights in resample_weights(n, n_resamples, seed, rows=_rows(n))])
    if n < 2:
        return dict.fromkeys(SOFT, NO_INTERVAL)
    values = {name: metric.function(probs, distribution, n_bins) for name, metric in SOFT.items()}
    found = Resampled(values, draws.values, draws.noise)
    return {name: interval(metric, found, tails) for name, metric in SOFT.items()}


class Resampled(NamedTuple):
    """Metrics of one model, or means over models on the same samples, by identifier.

    Attributes
    ----------
    values : on the samples. drawn : in each resample, (R,).
    noise : of errors, by how much chance may have made them too large, (R,): see the module.
    """

    values: Mapping[str, float]
    drawn: Mapping[str, Floats]
    noise: Mapping[str, Floats]


def resampled(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    n_bins: int = 15,
    further: Sequence[Metric] = (),
) -> Resampled:
    """All labelled metrics but ``ece_null`` with their resamples; parameters and errors as in :func:`bootstrap`.

    Row r is the same resample for all models with the same N and seed. Of ``smce`` and your own metrics there are the
    first 200.
    """
    predictions = check_probabilities(probs, labels)
    estimators = labelled_estimators(predictions, check_bins(n_bins))
    slow = [smooth_estimator(predictions), *([function_estimator(predictions, further, n_bins)] if further else [])]
    blocks, left = [], SMOOTH_RESAMPLES
    n, k = predictions.probs.shape
    rows = _rows(max(n, k * n_bins, kernel.NODES))
    for weights in resample_weights(n, n_resamples, seed, rows=rows):
        blocks += [estimate(weights) for estimate in estimators]
        if left > 0:
            blocks += [estimate(weights[:left]) for estimate in slow]
            left -= len(weights)
    draws = _join(blocks)
    metrics = {**LABELLED, **{metric.id: metric for metric in further}}
    values = {name: metrics[name].function(predictions, predictions.labels, n_bins) for name in draws.values}
    return Resampled(values, draws.values, draws.noise)


def resampled_metrics(probs: Probabilities, labels: ArrayLike, **options: Any) -> Mapping[str, Floats]:
    """Values (R,) of each metric in each resample: what :func:`resampled` has ``drawn``, with the same options."""
    return resampled(probs, labels, **options).drawn


def averaged(models: Sequence[Resampled]) -> Resampled:
    """Means over models on the same samples and resamples: a mean of errors is in doubt by no more than their mean."""
    together = zip(*models, strict=True)
    return Resampled(
        *({name: np.mean([part[name] for part in parts], axis=0) for name in parts[0]} for parts in together)
    )


def _join(blocks: Sequence[Draws]) -> Draws:
    return Draws(_joined(block.values for block in blocks), _joined(block.noise for block in blocks))


def _joined(blocks: Iterable[Mapping[str, Floats]]) -> dict[str, Floats]:
    parts: dict[str, list[Floats]] = {}
    for block in blocks:
        for name, values in block.items():
            parts.setdefault(name, []).append(values)
    return {name: np.concatenate(found) for name, found in parts.items()}


def resample_weights(
    n_samples: int, n_resamples: int, seed: int, *, stream: int = 0, rows: int | None = None
) -> Iterator[Floats]:
    """Yield how often each sample is drawn in each resample, float64 (rows, N) a block.

    The resamples depend on ``n_samples``, ``seed`` and ``stream`` only, not on how many make a block.

    Raises
    ------
    ConfigError : if ``n_resamples`` is less than 1.
    """
    if n_resamples < 1:
        raise ConfigError(f"n_resamples must be at least 1, got {n_resamples}.")
    rng = np.random.default_rng([seed, stream])
    rows = rows or _rows(n_samples)
    for start in range(0, n_resamples, rows):
        block = np.empty((min(rows, n_resamples - start), n_samples))
        for counts in block:
            counts[:] = np.bincount(rng.integers(0, n_samples, n_samples), minlength=n_samples)
        yield block


def _rows(width: int) -> int:
    """Resamples in a block whose widest array has this many entries a resample."""
    return max(MIN_ROWS, BLOCK_ENTRIES // width)


def tails_of(level: float) -> tuple[float, float]:
    """Lower and upper probability of an interval of nominal coverage ``level``; ConfigError outside (0, 1)."""
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")
    return (1 - level) / 2, (1 + level) / 2


def interval(metric: Metric, found: Resampled, tails: tuple[float, float]) -> Interval:
    """Interval (low, high) of a metric of one model between two probabilities, by its kind; NaN where it has none."""
    metric = LABELLED.get(metric.interval_of or "", metric)
    if metric.interval == "none":
        return NO_INTERVAL
    if metric.interval == "percentile":
        return _percentile(found.drawn[metric.id], tails)
    value, (below, above) = found.values[metric.id], _reach(metric, found, tails)
    # within the range of the quantity, which a reflection does not know
    return tuple(np.clip((value - below, value + above), *metric.bounds).tolist())


def difference_interval(metric: Metric, first: Resampled, second: Resampled, tails: tuple[float, float]) -> Interval:
    """Interval (low, high) of the difference first - second of a metric of two models on the same samples."""
    metric = LABELLED.get(metric.interval_of or "", metric)
    if metric.interval == "none":
        return NO_INTERVAL
    drawn = first.drawn[metric.id] - second.drawn[metric.id]
    if metric.interval == "percentile":
        return _percentile(drawn, tails)
    difference = first.values[metric.id] - second.values[metric.id]
    if metric.interval == "centred":
        below, above = _spread(drawn, tails)
    else:
        (below, above), (other_below, other_above) = (_reach(metric, one, tails) for one in (first, second))
        opposed = max(-_correlation(first.drawn[metric.id], second.drawn[metric.id]), 0.0)
        below = math.sqrt(below**2 + other_above**2 + 2 * opposed * below * other_above)
        above = math.sqrt(above**2 + other_below**2 + 2 * opposed * above * other_below)
    return float(difference - below), float(difference + above)


def _correlation(first: Floats, second: Floats) -> float:
    """Correlation of resampled values (R,) of two models; 0 where one of them does not vary."""
    both = np.stack([first - first.mean(), second - second.mean()])
    (one, product), (_, other) = both @ both.T
    return float(product / math.sqrt(one * other)) if one > 0 and other > 0 else 0.0


def quantiles(drawn: Floats, tails: Sequence[float]) -> Floats:
    """Quantiles over the first axis of R resamples, at the ranks (R + 1) p.

    Interpolation between the least and the largest draw, as is NumPy's default, leaves 3.0 % beyond an end that is to
    leave 2.5 % with 200 resamples. Source: Davison and Hinkley, Bootstrap Methods and their Application, 1997, 2.4.
    """
    return np.quantile(drawn, tails, axis=0, method="weibull")


def _percentile(drawn: Floats, tails: tuple[float, float]) -> Interval:
    """Quantiles of the resamples in which the metric exists."""
    drawn = drawn[~np.isnan(drawn)]
    return tuple(quantiles(drawn, tails).tolist()) if len(drawn) else NO_INTERVAL


def _reach(metric: Metric, found: Resampled, tails: tuple[float, float]) -> tuple[float, float]:
    """How far the interval of a ``centred`` or ``guarded`` metric goes below and above its value."""
    below, above = _spread(found.drawn[metric.id], tails)
    if metric.interval == "guarded":
        below = quantiles(found.noise[metric.id], tails[1:])[0]
    return below, max(above, below) if metric.is_largest_gap else above


def _spread(drawn: Floats, tails: tuple[float, float]) -> tuple[float, float]:
    """Distances of the upper quantile of the draws above their mean, and of the lower one below it."""
    low, high = quantiles(drawn, tails)
    return high - drawn.mean(), drawn.mean() - low
