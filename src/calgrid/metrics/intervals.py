"""Bootstrap intervals over test samples, for one model and for the difference of two on the same
samples.

``METRICS`` gives the type of interval of each metric. With v the value, q the quantiles of the
resampled values and m their mean:

``binomial`` : accuracy and top-5, the exact interval of a share (Clopper and Pearson, Biometrika
1934); for two models as ``percentile``.
``percentile`` [q_low, q_high] : NLL, Brier score, failure prediction and out-of-distribution
metrics; for two models, quantiles of the resampled differences. Resamples of the balanced accuracy
and the macro AUROC have their change to first order.
``skewed`` [v - z s, v exp(z s / v)], s the standard deviation of the resampled values : AURC; for
two models as ``percentile``.
    A sample with few of the wrong confident predictions has both a low AURC and a small s: of 800
    sets of 1,000 samples of two classes, one rare, 8 % of the quantiles q_high were below the
    truth.
``centred`` [v + m - q_high, v + m - q_low] : the decomposition of the Brier score, whose bias
correction does not
    cover the second sampling in a resample; m removes this bias. For two models, the same for the
    difference.
``guarded`` [v - c_high, v + m - q_low] : calibration errors. They are absolute values of gaps, and
c is the possible
    excess due to noise. For binned errors c is the change of gaps under resampling: signed in bins
    whose gap is more than 3 standard deviations from 0, absolute in the others (the directional
    derivative of the error with an estimated set of kinks: Fang and Santos, Review of Economic
    Studies 2019; Andrews and Soares, Econometrica 2010). For other errors c is the error of the
    resampling noise (triangle inequality). The upper end of ``ks`` is at least as far from v as the
    lower one, because a maximum of sums is often larger in resamples: without this 8 % of the
    intervals of 500 samples ended below the truth; so is the upper end of ``ece_sweep``, whose few
    bins hide gaps (9 % of 370 sets of 200 samples). The ends of a difference are d -+ sqrt(r^2 +
    s^2 - 2 c r s), with r and s the half-widths of both intervals in this direction and c the
    correlation of resampled values (Zou and Donner, Statistics in Medicine 2008), so that a bias of
    one model alone is not significant. Only negative c is used, as between an over- and an
    underconfident model (without it the coverage of ``rmsce`` and ``ece`` was 83 to 87 %); with
    positive c the coverage for a calibrated and a slightly overconfident model was too low (87 %
    for ``aece``, 83 % for ``o_ece``). A debiased error has the interval of its plain error: both
    estimate the same quantity, and the remaining bias (the correction removes two fifths at perfect
    calibration, all of it far from there) is as hard to bound.
``unbiased`` v -+ t s : ``squared_ce`` and the parts of the NLL. Under resampling they change by a
linear part and by products of two added
    samples, with variances l and p. Near calibration the linear part holds the noise of the samples
    themselves, twice that of the products, so s^2 = max(l - p, p): a plain bootstrap is too wide by
    up to sqrt(3) there (Arcones and Giné, Annals of Statistics 1992, on degenerate U-statistics). t
    is the Student quantile with R - 1 degrees of freedom. For two models the same with the
    differences, so a model against itself has width 0. For one model the upper end of
    ``squared_ce`` and ``nll_calibration``, which are squares of gaps, comes from an interval
    symmetric for the root of c: c + t s + (t s)^2 / 4 c, with c = max(v, 0) + sqrt(p / 2), the
    noise of one gap. The linear part of ``nll_refinement`` is that at the upper end of the interval
    of the temperature: where the best one is near its bound, its losses hardly differ.
``none`` : ``ece_null`` is not estimated from labels; for ``mce``, dominated by its smallest bin, we
found no valid one.

Resamples of a sample with few errors do not know the errors that it might have had. So there are
two more sources of noise (:mod:`calgrid.metrics._chance`):

Chance : the lower end of a ``guarded`` interval, of ``brier_calibration`` and of the L_p errors is
at least as far from v as the quantile of 99 errors of a calibrated model, whose labels are drawn
from the same probabilities. So it is 0 unless an error as large has a probability of at most the
lower tail, however few errors there are. The L_p errors keep the directions of the sample.
Further errors : every second resample of accuracy, balanced accuracy, top-5, NLL and its parts,
Brier score, AURC and ``squared_ce`` has four more errors, where the model
deems them most probable. Their number has the deviation 2, and 1.96 deviations are 3.9: the exact
upper end of a Poisson mean of which no event was seen is 3.7 (Agresti and Coull, American
Statistician 1998, add four observations to a share for the same reason). So there is no verdict on
two networks without an error that a few errors would turn. With E errors in the sample they count 1
- E / 50 each, and nothing from 50 on.

Intervals are clipped to the range of the quantity, but contain the estimate: an estimate without
bias may be below 0, and then its interval contains both the estimate and 0. Intervals of ``o_ece``
and ``u_ece``, which add up to ``ece``, end no higher than the one of ``ece``. ``smce`` needs a
linear programme per resample and ``further`` metrics a function call: they use only the first 200
resamples. A metric that is undefined in some resamples (no error was drawn) uses the others. An
interval and a verdict need the counts of ``Metric.needs``: with few errors the upper end of a
calibration error is too low (of overconfident models with one to two errors 20 to 53 % end below
the truth, with five or more at most 3 %), the places of a few errors say little about those of
others, and few samples of a class may all be right, or wrong. A single sample has no intervals. The
AUPR of errors is too high in a sample, and again in its resamples: its interval is moved down by
twice the difference.

``benchmarks/coverage.md`` has the coverage of these intervals, and of percentile, basic, BCa
(Efron, JASA 1987) and normal intervals, which fail near calibration: a percentile interval of a
plain error never contains 0, and the difference of two models keeps the difference of their biases.
"""

import functools
import math
import operator
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.errors import ConfigError
from calgrid.metrics._chance import MOST_DRAWS, added_errors, chance_errors
from calgrid.metrics._estimators import (
    MIN_ROWS,
    Draws,
    Estimator,
    deciding_estimators,
    function_estimator,
    joined,
    labelled_estimators,
    ood_estimator,
    rows_of_block,
    smooth_estimator,
    soft_estimator,
)
from calgrid.metrics._inputs import (
    Floats,
    Predictions,
    Probabilities,
    check_bins,
    check_probabilities,
)
from calgrid.metrics.moments import PRODUCT_BLOCK
from calgrid.metrics.table import (
    LABELLED,
    OOD,
    SOFT,
    Counts,
    Metric,
    ood_scores,
)

Interval = tuple[float, float]
Intervals = dict[str, Interval]
NO_INTERVAL: Interval = (math.nan, math.nan)

#: resamples of slow metrics: the smooth calibration error and ``further`` ones
SMOOTH_RESAMPLES = 200
#: resamples on which verdicts are based, the first ones
DECIDING_RESAMPLES = 200
#: unbiased estimates of the square of a gap, whose root has the more symmetric distribution
SQUARES = {"squared_ce", "nll_calibration"}
#: metrics that are too high in a sample, and again in its resamples
TOO_HIGH = {"aupr_failure"}
#: fewer rows are warned of: chance alone gives them a large ECE
FEW_ROWS = 20
#: relative size of differences of an error and one drawn by chance that may be rounding
ROUNDING = 1e-6
#: largest number of weights that are kept for the next model
KEPT_DRAWS = 2**26


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
    """Interval (low, high) of every labelled metric by identifier, or NaN: see the module.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,).
    n_resamples : number of resamples. level : nominal coverage, in (0, 1).
    seed : seed of the resamples, which depend only on it and N: models on one test set have paired
        resamples.
    n_bins : number of confidence bins.
    further : additional labelled metrics; they cannot have ``guarded`` intervals.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`; ConfigError for a ``level`` or
        ``n_resamples`` out of range.
    """
    tails, further = tails_of(level), list(further)
    predictions = check_probabilities(probs, labels)
    drawn = [metric for metric in further if metric.interval != "none"]
    resamples = resampled(
        predictions, labels, n_resamples=n_resamples, seed=seed, n_bins=n_bins, further=drawn
    )
    shape = predictions.probs.shape
    metrics = [metric for metric in (*LABELLED.values(), *further) if metric.is_computed(*shape)]
    return _intervals(metrics, resamples, tails)


def bootstrap_difference(
    probs: Probabilities,
    other_probs: Probabilities,
    labels: ArrayLike,
    *,
    level: float = 0.95,
    **options: Any,
) -> Intervals:
    """Interval (low, high) of metric(probs) - metric(other_probs), both on the same resamples: see
    the module.

    Parameters
    ----------
    probs, other_probs : probabilities (N, K) of two models for the same samples. labels : integers
        (N,).
    level, options : as in :func:`bootstrap`, as are errors and missing intervals.
    """
    predictions = check_probabilities(probs, labels)
    first = resampled(predictions, labels, **options)
    second = resampled(other_probs, labels, **options)
    tails = tails_of(level)
    if np.size(labels) < 2:
        return dict.fromkeys(LABELLED, NO_INTERVAL)
    shape = predictions.probs.shape
    return {
        name: difference_interval(metric, first, second, tails)
        for name, metric in LABELLED.items()
        if metric.is_computed(*shape)
    }


def bootstrap_ood(
    probs_id: ArrayLike,
    probs_ood: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Intervals:
    """Percentile interval (low, high) of every out-of-distribution metric; both sets are resampled,
    independently.

    Other parameters, errors and missing intervals as in :func:`bootstrap`.

    Parameters
    ----------
    probs_id, probs_ood : probabilities (N, K) and (M, K) of one model.
    """
    tails, scores = tails_of(level), ood_scores(probs_id, probs_ood)
    return _intervals(OOD.values(), resampled_scores(OOD, scores, n_resamples, seed), tails)


def bootstrap_soft(
    probs: ArrayLike,
    distribution: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
) -> Intervals:
    """Bootstrap interval (low, high) of every soft metric by identifier, over images; NaN for a
    single image.

    Parameters
    ----------
    probs, distribution : as in :func:`calgrid.metrics.evaluate_soft`. Others and errors as in
        :func:`bootstrap`.
    """
    tails = tails_of(level)
    resamples = resampled_soft(
        probs, distribution, n_resamples=n_resamples, seed=seed, n_bins=n_bins
    )
    return _intervals(SOFT.values(), resamples, tails)


class Estimate(NamedTuple):
    """A value and its bootstrap interval, NaN without one."""

    value: float
    low: float = math.nan
    high: float = math.nan


class Resampled(NamedTuple):
    """Metrics of one model, or means over models on the same samples, by identifier.

    Attributes
    ----------
    values : values on the samples. drawn : values in each resample, (R,).
    noise : possible excess of errors due to noise, (R,): see the module.
    chance : errors of a calibrated model with the same probabilities, (Q,): see the module.
    n_samples : number of samples, of the smaller set where there are two.
    """

    values: Mapping[str, float]
    drawn: Mapping[str, Floats]
    noise: Mapping[str, Floats]
    chance: Mapping[str, Floats]
    n_samples: int


def _intervals(
    metrics: Iterable[Metric], resamples: Resampled, tails: tuple[float, float]
) -> Intervals:
    if resamples.n_samples < 2:
        return {metric.id: NO_INTERVAL for metric in metrics}
    return {metric.id: interval(metric, resamples, tails) for metric in metrics}


def resampled(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    n_bins: int = 15,
    further: Sequence[Metric] = (),
) -> Resampled:
    """All labelled metrics but ``ece_null`` with their resamples; parameters and errors as in
    :func:`bootstrap`.

    Row r is the same resample for all models with the same N and seed. Of ``smce`` and of metrics
    without a fast estimator, as those of plugins, there are the first 200.
    """
    predictions = check_probabilities(probs, labels)
    estimators = labelled_estimators(predictions, check_bins(n_bins))
    slow = [smooth_estimator(predictions)]
    n, k = predictions.probs.shape
    once = np.ones((1, n))
    fast = joined([estimate(once) for estimate in [*estimators, *slow]]).values
    others = [
        metric
        for metric in LABELLED.values()
        if metric.interval != "none" and metric.is_computed(n, k) and metric.id not in fast
    ]
    if others or further:
        slow.append(function_estimator(predictions, [*others, *further], n_bins))
    found = _resampled(predictions, estimators, slow, n_bins, n_resamples, seed, further)
    chance = chance_errors(predictions, n_bins, min(n_resamples, MOST_DRAWS), seed)
    return found._replace(chance=chance)


def resampled_means(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_resamples: int = DECIDING_RESAMPLES,
    seed: int = 0,
    n_bins: int = 15,
) -> Resampled:
    """Means over samples (accuracy, top-5, NLL, Brier score) and ``squared_ce`` with the resamples
    of :func:`resampled`, in a tenth of the time.
    """
    predictions = check_probabilities(probs, labels)
    estimators = deciding_estimators(predictions, check_bins(n_bins))
    return _resampled(predictions, estimators, (), n_bins, n_resamples, seed)


def _resampled(
    predictions: Predictions,
    estimators: Sequence[Estimator],
    slow: Sequence[Estimator],
    n_bins: int,
    n_resamples: int,
    seed: int,
    further: Sequence[Metric] = (),
) -> Resampled:
    """Metrics of estimators and, for the first resamples, of slow ones."""
    blocks, left = [], SMOOTH_RESAMPLES
    for weights in _weights(predictions.n_samples, n_resamples, seed):
        blocks += [estimate(weights) for estimate in estimators]
        if left > 0:
            blocks += [estimate(weights[:left]) for estimate in slow]
            left -= len(weights)
    draws = with_added(joined(blocks), predictions, n_bins, n_resamples, seed)
    metrics = {**LABELLED, **{metric.id: metric for metric in further}}
    values = {
        name: metrics[name].function(predictions, predictions.labels, n_bins)
        for name in draws.values
    }
    return Resampled(values, *draws, {}, predictions.n_samples)


def with_added(
    draws: Draws, predictions: Predictions, n_bins: int, n_resamples: int, seed: int
) -> Draws:
    """Return the draws, every second one with unseen errors; NaN for metrics that need more
    samples.
    """
    changes, pairs = added_errors(predictions, n_bins, n_resamples, seed)
    values, noise = dict(draws.values), dict(draws.noise)
    for name in changes.keys() & values.keys():
        values[name] = values[name] + changes[name]
    if "squared_ce" in noise:
        noise["squared_ce"] = noise["squared_ce"] + pairs
    n, right, sure = predictions.n_samples, predictions.correct.sum(), predictions.confidence.sum()
    labels, k = predictions.labels, predictions.probs.shape[1]
    of_class = np.bincount(labels, minlength=k)
    right_of_class = np.bincount(labels, predictions.label_probs, k)
    # where too few errors are expected, the seen ones are too many by chance
    fewer, expected = min(right, n - right), min(sure, n - sure)
    counts = Counts(fewer, expected, of_class.min(), right_of_class.min(), n / k)
    for parts in (values, noise):
        for name in LABELLED.keys() & parts.keys():
            if any(map(operator.lt, counts, LABELLED[name].needs)):
                parts[name] = np.full_like(parts[name], np.nan)
    return Draws(values, noise)


def _weights(n_samples: int, n_resamples: int, seed: int) -> Iterator[Floats]:
    """Yield blocks of :func:`resample_weights`, drawn once for all models of a test set unless it
    is large.
    """
    rows = max(MIN_ROWS, PRODUCT_BLOCK // n_samples)
    if n_samples * n_resamples > KEPT_DRAWS:
        yield from resample_weights(n_samples, n_resamples, seed, rows=rows)
        return
    counts = _counts(n_samples, n_resamples, seed)
    for start in range(0, n_resamples, rows):
        yield counts[start : start + rows].astype(np.float64)


@functools.lru_cache(maxsize=2)
def _counts(n_samples: int, n_resamples: int, seed: int) -> NDArray[np.uint16]:
    """All weights of :func:`resample_weights`."""
    blocks = resample_weights(n_samples, n_resamples, seed)
    return np.concatenate([block.astype(np.uint16) for block in blocks])


def resampled_scores(
    metrics: Mapping[str, Metric],
    scores: Mapping[Any, tuple[Floats, ...]],
    n_resamples: int,
    seed: int,
) -> Resampled:
    """Out-of-distribution metrics with their resamples; ``scores`` has the ID scores (N,) and OOD
    scores (M,) of each scoring function of the ``metrics``.
    """
    estimators = {score: ood_estimator(*pair) for score, pair in scores.items()}
    n, m = map(len, next(iter(scores.values())))
    rows = rows_of_block(max(n, m))
    pairs = zip(
        resample_weights(n, n_resamples, seed, rows=rows),
        resample_weights(m, n_resamples, seed, stream=1, rows=rows),
        strict=True,
    )
    blocks = []
    for pair in pairs:
        found = {score: estimate(*pair) for score, estimate in estimators.items()}
        drawn = {name: found[metric.score][metric.function] for name, metric in metrics.items()}
        blocks.append(Draws(drawn, {}))
    values = {name: metric.function(*scores[metric.score]) for name, metric in metrics.items()}
    return Resampled(values, *joined(blocks), {}, min(n, m))


def resampled_soft(
    probs: ArrayLike,
    distribution: ArrayLike,
    *,
    n_resamples: int = 1000,
    seed: int = 0,
    n_bins: int = 15,
) -> Resampled:
    """Soft metrics with their resamples; parameters and errors as in :func:`bootstrap_soft`."""
    estimate, n = soft_estimator(probs, distribution, n_bins), np.shape(probs)[0]
    draws = joined([estimate(weights) for weights in resample_weights(n, n_resamples, seed)])
    values = {name: metric.function(probs, distribution, n_bins) for name, metric in SOFT.items()}
    return Resampled(values, *draws, {}, n)


def averaged(models: Sequence[Resampled]) -> Resampled:
    """Means over models on the same samples and resamples: a mean of errors is in doubt by no more
    than their mean.
    """
    values, drawn, noise, chance, counts = zip(*models, strict=True)
    return Resampled(_means(values), _means(drawn), _means(noise), _means(chance), counts[0])


def _means(models: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    means = {}
    for name in models[0]:
        means[name] = np.mean([model[name] for model in models], axis=0)
    return means


def resample_weights(
    n_samples: int, n_resamples: int, seed: int, *, stream: int = 0, rows: int | None = None
) -> Iterator[Floats]:
    """Yield blocks of weights, float64 (rows, N): how often each sample is drawn in each resample.

    The resamples depend only on ``n_samples``, ``seed`` and ``stream``, not on the size of blocks.

    Raises
    ------
    ConfigError : ``n_resamples`` is less than 1.
    """
    if n_resamples < 1:
        raise ConfigError(f"n_resamples must be at least 1, got {n_resamples}.")
    rng = np.random.default_rng([seed, stream])
    rows = rows or rows_of_block(n_samples)
    for start in range(0, n_resamples, rows):
        block = np.empty((min(rows, n_resamples - start), n_samples))
        for counts in block:
            counts[:] = np.bincount(rng.integers(0, n_samples, n_samples), minlength=n_samples)
        yield block


def tails_of(level: float) -> tuple[float, float]:
    """Lower and upper probability of an interval of nominal coverage ``level``.

    Raises
    ------
    ConfigError : the level is not in (0, 1).
    """
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")
    return (1 - level) / 2, (1 + level) / 2


def interval(metric: Metric, resamples: Resampled, tails: tuple[float, float]) -> Interval:
    """Interval (low, high) of a metric of one model, at two tail probabilities, or NaN."""
    if metric.interval == "none":
        return NO_INTERVAL
    estimate = resamples.values[metric.id]
    if metric.interval == "percentile":
        low, high = _percentile(resamples.drawn[metric.id], tails)
        if metric.id in TOO_HIGH and not math.isnan(low):
            excess = 2 * (float(np.nanmean(resamples.drawn[metric.id])) - estimate)
            low, high = min(low - excess, estimate), max(high - excess, estimate)
        # a change to first order may lead beyond the range
        return max(low, metric.bounds[0]), min(high, metric.bounds[1])
    if metric.interval == "skewed":
        std, (below, above) = float(resamples.drawn[metric.id].std()), special.ndtri(tails)
        return float(estimate + below * std), float(estimate * np.exp(above * std / estimate))
    if metric.interval == "binomial":
        # the shares at which a count as low, or as high, has the probability of a tail
        n, count = resamples.n_samples, estimate * resamples.n_samples
        low = float(special.betaincinv(count, n - count + 1, tails[0])) if count > 0 else 0.0
        high = float(special.betaincinv(count + 1, n - count, tails[1])) if count < n else 1.0
        return low, high
    metric = LABELLED.get(metric.interval_of or "", metric)
    value = resamples.values[metric.id]
    if metric.interval == "unbiased":
        drawn, noise = resamples.drawn[metric.id], resamples.noise[metric.id]
        below = above = _student(drawn, noise, tails)
        if metric.id in SQUARES and above > 0:
            square = max(value, 0.0) + float(noise.std(ddof=1)) / math.sqrt(2)
            above += max(square - value, 0.0) + above**2 / (4 * square)
    else:
        below, above = _reach(metric, resamples, tails)
    # a reflected end may be outside the range of the quantity, and so may an estimate without bias
    low, high = np.clip((value - below, value + above), *metric.bounds).tolist()
    if metric.part_of is not None:
        high = min(high, interval(LABELLED[metric.part_of], resamples, tails)[1])
    return min(low, estimate), max(high, estimate)


def difference_interval(
    metric: Metric, first: Resampled, second: Resampled, tails: tuple[float, float]
) -> Interval:
    """Interval (low, high) of the difference first - second of a metric of two models on the same
    samples.
    """
    metric = LABELLED.get(metric.interval_of or "", metric)
    if metric.interval == "none":
        return NO_INTERVAL
    drawn = first.drawn[metric.id] - second.drawn[metric.id]
    if metric.interval in ("percentile", "skewed", "binomial"):
        return _percentile(drawn, tails)
    difference = first.values[metric.id] - second.values[metric.id]
    if metric.interval == "centred":
        below, above = _spread(drawn, tails)
    elif metric.interval == "unbiased":
        noise = first.noise[metric.id] - second.noise[metric.id]
        below = above = _student(drawn, noise, tails)
    elif not drawn.any() and np.array_equal(first.noise[metric.id], second.noise[metric.id]):
        below = above = 0.0  # a model against itself
    else:
        below, above = _reach(metric, first, tails)
        other_below, other_above = _reach(metric, second, tails)
        mine, others = first.drawn[metric.id], second.drawn[metric.id]
        both = np.stack([mine - mine.mean(), others - others.mean()])
        (one, product), (_, other) = both @ both.T
        # no correlation where one of them does not vary
        varies = one > 0 and other > 0
        opposed = max(-float(product / math.sqrt(one * other)), 0.0) if varies else 0.0
        below = math.sqrt(below**2 + other_above**2 + 2 * opposed * below * other_above)
        above = math.sqrt(above**2 + other_below**2 + 2 * opposed * above * other_below)
    return float(difference - below), float(difference + above)


def quantiles(drawn: Floats, tails: Sequence[float]) -> Floats:
    """Quantiles over the first axis of R resamples, at the ranks (R + 1) p.

    NumPy's default, interpolation between the smallest and the largest draw, has a tail of 3.0 %
    instead of 2.5 % with 200 resamples. Source: Davison and Hinkley, Bootstrap Methods and their
    Application, 1997, 2.4.
    """
    return np.quantile(drawn, tails, axis=0, method="weibull")


def _percentile(drawn: Floats, tails: tuple[float, float]) -> Interval:
    """Quantiles of the resamples in which the metric is defined."""
    drawn = drawn[~np.isnan(drawn)]
    return tuple(quantiles(drawn, tails).tolist()) if len(drawn) else NO_INTERVAL


def _reach(metric: Metric, resamples: Resampled, tails: tuple[float, float]) -> tuple[float, float]:
    """Distances of the ends of a ``centred`` or ``guarded`` interval below and above the value."""
    below, above = _spread(resamples.drawn[metric.id], tails)
    if metric.interval == "guarded":
        below = quantiles(resamples.noise[metric.id], tails[1:])[0]
    if metric.id in resamples.chance:
        largest = quantiles(resamples.chance[metric.id], tails[1:])[0]
        below = max(below, (1 + ROUNDING) * largest)
    if metric.reaches_up:
        above = max(above, below)
    return below, above


def _student(drawn: Floats, pairs: Floats, tails: tuple[float, float]) -> float:
    """Half-width of an ``unbiased`` interval."""
    std = math.sqrt(float(sampling_variance(drawn, pairs)))
    return std * float(special.stdtrit(len(drawn) - 1, tails[1]))


def sampling_variance(drawn: Floats, pairs: Floats | float = 0.0) -> Floats:
    """Variance over samples (...) of a quantity or difference, from its R resamples (..., R).

    Parameters
    ----------
    drawn : its values to first order. pairs : change by products of two added samples, see the
        module; 0 for means over samples.
    """
    both = np.broadcast_arrays(drawn, pairs)
    with warnings.catch_warnings():
        # a metric may be undefined in some resamples, or in all of one model
        warnings.simplefilter("ignore", RuntimeWarning)
        linear, products = (np.nanvar(each, axis=-1, ddof=1) for each in both)
    return np.asarray(np.maximum(linear - products, products))


def _spread(drawn: Floats, tails: tuple[float, float]) -> tuple[float, float]:
    """Distances of the upper quantile of draws above their mean, and of the lower one below."""
    low, high = quantiles(drawn, tails)
    return high - drawn.mean(), drawn.mean() - low
