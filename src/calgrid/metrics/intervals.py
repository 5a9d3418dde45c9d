"""Bootstrap intervals over test samples.

Which interval a metric gets stands in ``METRICS``. With v the value, q the quantiles of the resampled values and m
their mean:

``percentile`` [q_low, q_high] : accuracy, top-5, NLL, Brier score, failure prediction and out-of-distribution metrics.
``centred`` [v + m - q_high, v + m - q_low] : the split of the Brier score, corrected for the bias of one sampling but
    not for that of the second one in a resample, which m takes out.
``debiased`` [2 v - q_high, v + m - q_low] : debiased errors, whose remaining bias may be anything from none (far from
    calibrated) to that of a resample (calibrated): the lower end allows for the latter, the upper end for the former.
``guarded`` [v - c_high, v + m - q_low] : plain errors. They are sizes of the residuals p_i - a_i, and c are the sizes
    of what resampling has added to these, so that by the triangle inequality the lower end promises no more than
    chance leaves. It is 0 where chance alone explains the value. Conservative; the debiased error has the sharp one.
``none`` : ``ece_null`` is no estimate from the labels.

Errors are cut to [0, 1]. ``smce`` costs a dynamic programme a resample: it gets the first 200 of them. Of metrics that
do not exist in every resample (no error drawn) those in which they do count. A single sample has no intervals.

The common alternatives are worse where it matters, near calibration: a percentile interval of a plain error never
holds 0, and the basic interval [2 v - q_high, 2 v - q_low] held it in 53 to 56 % of the test sets for ``ece``, 40 to
47 % for ``aece`` and never for ``cece``, and may end below v.

Coverage of 95 % intervals in simulations, in % of test sets whose interval holds the population value (0 for errors
of a calibrated model). The logits of calibrated models were multiplied by 1, 1.08 and 1.3; 200 to 300 resamples. First
three columns: N = 1,000, K = 5, 200, 150 and 150 test sets (300 for the debiased errors of the first); last two:
N = 10,000, K = 10, 60 test sets each, so that a share of 95 has a standard error of 2.8.

::

    factor                    1     1.08      1.3        1      1.3
    accuracy                 98       98       98       98       98
    top5                      -        -        -       92       92
    ece                      98      100      100       98      100
    ece_debiased             94       99       97       92      100
    aece                    100      100      100       98      100
    aece_eq                  99      100      100       98      100
    ece_sweep                98      100      100       97      100
    cece                     96      100      100       97      100
    mce                     100      100      100       98      100
    rmsce                    96      100      100       97       98
    rmsce_debiased           98       99       99       97       98
    o_ece                    99       99       99       98      100
    u_ece                    98      100      100      100       98
    ks                       99       97       99      100      100
    nll                      96       97       97       97      100
    brier                    96       99       98       97       97
    brier_calibration       100      100      100       98       97
    brier_refinement         96       97       97       97       97
    smce                     98       90       99      100      100
    smece                    97      100       99       98      100
    aurc                     96       97       97       97       97
    auroc_failure            94       92       92       90       88
    fpr95_failure            94       94       93       93       93
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import ConfigError
from calgrid.metrics import kernel
from calgrid.metrics._estimators import Draws, labelled_estimators, ood_estimator, smooth_estimator, soft_estimator
from calgrid.metrics._inputs import Predictions, Probabilities, check_bins, check_probabilities
from calgrid.metrics.evaluation import ood_scores
from calgrid.metrics.table import LABELLED, OOD, SOFT, Metric

Floats = NDArray[np.float64]
Interval = tuple[float, float]
Intervals = dict[str, Interval]
NO_INTERVAL: Interval = (math.nan, math.nan)

#: resamples of the smooth calibration error, each of which costs a dynamic programme
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
) -> Intervals:
    """Bootstrap interval (low, high) of every labelled metric by identifier; NaN where there is none.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,).
    n_resamples : number of resamples. level : nominal coverage, in (0, 1).
    seed : of the resamples, which depend on it and on N alone: models on one test set can be compared in pairs.
    n_bins : number of confidence bins.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`; ConfigError for a ``level`` or ``n_resamples`` out of
        range.

    Source: Efron and Tibshirani 1993; reflection for debiased errors as in the code of Kumar et al., NeurIPS 2019; the
    guard of plain errors is ours.
    """
    predictions = check_probabilities(probs, labels)
    draws, tails = _draw(predictions, n_resamples, seed, n_bins), _tails(level)
    if predictions.n_samples < 2:
        return dict.fromkeys(LABELLED, NO_INTERVAL)
    return _intervals(LABELLED, draws, tails, lambda metric: metric.function(predictions, predictions.labels, n_bins))


def bootstrap_difference(
    probs: Probabilities,
    other_probs: Probabilities,
    labels: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
    n_bins: int = 15,
) -> Intervals:
    """Percentile interval (low, high) of metric(probs) - metric(other_probs), both on the same resamples.

    Parameters
    ----------
    probs, other_probs : probabilities (N, K) of two models for the same samples. labels : integers (N,).
    Others, errors and missing intervals as in :func:`bootstrap`.
    """
    pair = check_probabilities(probs, labels), check_probabilities(other_probs, labels)
    first, second = (
        resampled_metrics(one, one.labels, n_resamples=n_resamples, seed=seed, n_bins=n_bins) for one in pair
    )
    tails = _tails(level)
    if pair[0].n_samples < 2:
        return dict.fromkeys(LABELLED, NO_INTERVAL)
    differences = {name: first[name] - second[name] for name in first}
    return {name: _percentile(differences[name], tails) if name in first else NO_INTERVAL for name in LABELLED}


def bootstrap_ood(
    probs_id: ArrayLike,
    probs_ood: ArrayLike,
    *,
    n_resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Intervals:
    """Percentile interval (low, high) of every out-of-distribution metric; both sets are resampled, independently.

    Parameters
    ----------
    probs_id, probs_ood : probabilities (N, K) and (M, K) of one model.
    Others, errors and missing intervals as in :func:`bootstrap`.
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
    tails = _tails(level)
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
    estimate, tails = soft_estimator(probs, distribution, n_bins), _tails(level)
    n = len(probs)
    blocks = [estimate(weights) for weights in resample_weights(n, n_resamples, seed, rows=_rows(n))]
    if n < 2:
        return dict.fromkeys(SOFT, NO_INTERVAL)
    return _intervals(SOFT, _join(blocks), tails, lambda metric: metric.function(probs, distribution, n_bins))


def resampled_metrics(
    probs: Probabilities, labels: ArrayLike, *, n_resamples: int = 1000, seed: int = 0, n_bins: int = 15
) -> dict[str, Floats]:
    """Values (R,) in each resample of every labelled metric that has an interval; of ``smce`` in the first 200.

    Parameters and errors as in :func:`bootstrap`. Row r is the same resample for all models with the same N and seed.
    """
    return _draw(check_probabilities(probs, labels), n_resamples, seed, n_bins).values


def _draw(predictions: Predictions, n_resamples: int, seed: int, n_bins: int) -> Draws:
    estimators, smooth = labelled_estimators(predictions, check_bins(n_bins)), smooth_estimator(predictions)
    blocks, left = [], SMOOTH_RESAMPLES
    n, k = predictions.probs.shape
    rows = _rows(max(n, k * n_bins, kernel.NODES))
    for weights in resample_weights(n, n_resamples, seed, rows=rows):
        blocks += [estimate(weights) for estimate in estimators]
        if left > 0:
            blocks.append(smooth(weights[:left]))
            left -= len(weights)
    return _join(blocks)


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


def _tails(level: float) -> tuple[float, float]:
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")
    return (1 - level) / 2, (1 + level) / 2


def _intervals(
    metrics: Mapping[str, Metric], draws: Draws, tails: tuple[float, float], value: Callable[[Metric], float]
) -> Intervals:
    """Interval of each metric by its kind; ``value`` gives that of the sample where the kind needs it."""
    found = dict.fromkeys(metrics, NO_INTERVAL)
    for name, drawn in draws.values.items():
        kind = metrics[name].interval
        if kind == "percentile":
            found[name] = _percentile(drawn, tails)
        else:
            found[name] = _INTERVALS[kind](drawn, draws.noise.get(name), tails, value(metrics[name]))
    return found


def _percentile(drawn: Floats, tails: tuple[float, float]) -> Interval:
    """Quantiles of the resamples in which the metric exists."""
    drawn = drawn[~np.isnan(drawn)]
    return tuple(np.quantile(drawn, tails).tolist()) if len(drawn) else NO_INTERVAL


def _centred(drawn: Floats, noise: Floats | None, tails: tuple[float, float], value: float) -> Interval:
    """Value less the quantiles of the distance of the draws from their mean."""
    low, high = np.quantile(drawn, tails)
    return float(value + drawn.mean() - high), float(value + drawn.mean() - low)


def _debiased(drawn: Floats, noise: Floats | None, tails: tuple[float, float], value: float) -> Interval:
    """From the basic interval's lower end to the centred one's upper end."""
    return _cut(2 * value - np.quantile(drawn, tails[1]), _centred(drawn, noise, tails, value)[1])


def _guarded(drawn: Floats, noise: Floats | None, tails: tuple[float, float], value: float) -> Interval:
    """From the value less what chance may add to the centred interval's upper end."""
    return _cut(value - np.quantile(noise, tails[1]), _centred(drawn, noise, tails, value)[1])


def _cut(low: float, high: float) -> Interval:
    """Both ends within [0, 1], the range of an error, which a reflection does not know."""
    return tuple(np.clip((low, high), 0.0, 1.0).tolist())


_INTERVALS = {"centred": _centred, "debiased": _debiased, "guarded": _guarded}
