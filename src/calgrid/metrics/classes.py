"""Metrics that weigh all classes alike, however few images a class has."""

import math

import numpy as np
from numpy.typing import ArrayLike

from calgrid.metrics._inputs import (
    CERTAIN,
    Floats,
    Predictions,
    Probabilities,
    check_probabilities,
    computed_once,
)


def balanced_accuracy(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Mean over classes of the sensitivity, the fraction of the samples of a class that is
    predicted correctly; classes without samples are left out.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`. Source: Brodersen et al., ICPR
    2010.
    """
    sensitivity = class_sensitivity(check_probabilities(probs, labels))
    return _mean_of_seen(sensitivity)


def macro_auroc(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Mean over classes of the AUROC of the probability of a class, its samples against all others;
    classes without samples are left out, and NaN if all samples are of one class.

    Parameters and errors as in :func:`calgrid.metrics.accuracy`. Source: Fawcett, Pattern
    Recognition Letters 2006, with equal weights.
    """
    areas, _ = class_auroc(check_probabilities(probs, labels))
    return _mean_of_seen(areas)


def class_sensitivity(predictions: Predictions) -> Floats:
    """Fraction of the samples of each class that is predicted correctly, (K,); NaN without any."""
    count = np.bincount(predictions.labels, minlength=predictions.probs.shape[1])
    right = np.bincount(predictions.labels, predictions.correct, len(count))
    return np.divide(right, count, out=np.full(len(count), np.nan), where=count > 0)


def _mean_of_seen(of_class: Floats) -> float:
    """Mean over the classes whose value is not NaN, independent of their order; NaN without any."""
    seen = of_class[~np.isnan(of_class)]
    return math.fsum(seen) / len(seen) if len(seen) else math.nan


def balanced_per_sample(predictions: Predictions) -> Floats:
    """Contributions of samples, (N,): their mean is the balanced accuracy, and their mean in a
    resample its balanced accuracy to first order.
    """
    labels, sensitivity = predictions.labels, class_sensitivity(predictions)
    of_class = np.bincount(labels)[labels] * np.count_nonzero(~np.isnan(sensitivity))
    change = predictions.correct - sensitivity[labels]
    return _mean_of_seen(sensitivity) + predictions.n_samples / of_class * change


def auroc_per_sample(predictions: Predictions) -> Floats:
    """As :func:`balanced_per_sample` for the macro AUROC."""
    areas, change = class_auroc(predictions)
    return _mean_of_seen(areas) + change / max(int(np.count_nonzero(~np.isnan(areas))), 1)


@computed_once
def class_auroc(predictions: Predictions) -> tuple[Floats, Floats]:
    """AUROC of each class against all others, (K,), NaN without samples of the class or others, and
    the contributions of samples, (N,), to the change of their sum in a resample, to first order.

    A sample contributes the share of other samples against which its rank is right (DeLong et al.,
    Biometrics 1988).
    """
    scores, labels = predictions.probs, predictions.labels
    if predictions.logs is not None:
        # logarithms keep the order of probabilities that round to 0 or 1
        scores = predictions.logs.copy()
        near = np.flatnonzero(predictions.confidence > CERTAIN)
        # beyond all logarithms, which are at most 0
        scores[near, predictions.probs[near].argmax(axis=1)] = predictions.certainty[near]
    n, k = scores.shape
    areas, change = np.full(k, np.nan), np.zeros(n)
    for number in np.unique(labels):
        inside = labels == number
        if inside.all():
            break
        own, others = scores[inside, number], scores[~inside, number]
        below, above = _share_below(others, own), 1 - _share_below(own, others)
        areas[number] = area = below.mean()
        change[inside] += (below - area) * n / len(own)
        change[~inside] += (above - area) * n / len(others)
    return areas, change


def _share_below(numbers: Floats, values: Floats) -> Floats:
    """Share of numbers below each value, equal ones counted half."""
    ascending = np.sort(numbers)
    below = np.searchsorted(ascending, values, side="left")
    upto = np.searchsorted(ascending, values, side="right")
    return (below + upto) / (2 * len(ascending))
