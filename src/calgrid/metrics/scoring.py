"""Proper scores and accuracy, on probabilities and labels."""

import math

import numpy as np
from numpy.typing import ArrayLike

from calgrid.metrics._inputs import (
    Floats,
    Predictions,
    Probabilities,
    check_probabilities,
    computed_once,
)
from calgrid.metrics.binning import classwise_sums, debiased_square
from calgrid.metrics.moments import row_blocks, row_sums


def accuracy(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Fraction of samples whose first arg max is the label.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.

    Raises
    ------
    DataError : invalid probabilities or labels, see :func:`calgrid.metrics.check_probabilities`.
    """
    return float(check_probabilities(probs, labels).correct.mean())


def top5(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Fraction of samples whose label is among the min(5, K) largest probabilities; ties by lower
    class index.

    Parameters and errors as in :func:`accuracy`.
    """
    return float(top5_per_sample(check_probabilities(probs, labels)).mean())


def nll(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Mean negative log-likelihood in nats, ``mean_i(-ln p_i[y_i])``.

    A probability of exactly 0 counts as the smallest positive number of its type (744 nats in
    float64, 103 in float32). With the output of :func:`calgrid.metrics.from_logits` the logarithms
    are used, which no rounding makes infinite.

    Parameters and errors as in :func:`accuracy`.
    """
    return float(nll_per_sample(check_probabilities(probs, labels)).mean())


def brier(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Brier score (Brier 1950), ``mean_i sum_k (p_ik - 1[y_i = k])^2``, in [0, 2]: the sum over
    classes, not their mean.

    Parameters and errors as in :func:`accuracy`.
    """
    return float(brier_per_sample(check_probabilities(probs, labels)).mean())


def brier_calibration(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Part of the Brier score that classwise recalibration can remove; the rest is
    :func:`brier_refinement`.

    ``sum_k sum_b (n_kb / N) [(mean p_k - mean y_k)^2 - mean y_k (1 - mean y_k) / (n_kb - 1)]`` over
    the equal-width bins of :func:`calgrid.metrics.cece`; the last term corrects the bias of small
    bins, so the sum may be slightly negative. Bins of one sample are ignored.

    Parameters and errors as in :func:`calgrid.metrics.ece`. Source: Murphy, Journal of Applied
    Meteorology 1973; bias correction of Bröcker, Climate Dynamics 2012, and Ferro and Fricker,
    QJRMS 2012.
    """
    sums = classwise_sums(check_probabilities(probs, labels), n_bins)
    return math.fsum(debiased_square(sums))


def brier_refinement(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Brier score minus :func:`brier_calibration`: the score of a recalibrated model with the same
    bins.

    It includes the variance of probabilities within bins, so that both parts add up exactly
    (Stephenson, Coelho and Jolliffe, Weather and Forecasting 2008). Parameters, errors and source
    as in :func:`brier_calibration`.
    """
    predictions = check_probabilities(probs, labels)
    return brier(predictions, predictions.labels) - brier_calibration(
        predictions, predictions.labels, n_bins
    )


def brier_top_label(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Brier score of the confidence, ``mean_i (p_i - a_i)^2``, in [0, 1].

    Parameters and errors as in :func:`accuracy`.
    """
    predictions = check_probabilities(probs, labels)
    return float(((predictions.confidence - predictions.correct) ** 2).mean())


@computed_once
def top5_per_sample(predictions: Predictions) -> Floats:
    """1.0 where the label is among the five largest probabilities of its row, else 0.0, (N,)."""
    # probabilities of 0 tie, their logarithms need not
    values = predictions.probs if predictions.logs is None else predictions.logs
    of_label = values[np.arange(len(values)), predictions.labels][:, None]
    ahead = np.count_nonzero(values > of_label, axis=1)
    not_below = np.count_nonzero(values >= of_label, axis=1)
    tied = np.flatnonzero((ahead < 5) & (not_below > ahead + 1))
    earlier = np.arange(values.shape[1]) < predictions.labels[tied, None]
    ahead[tied] += ((values[tied] == of_label[tied]) & earlier).sum(axis=1)
    return (ahead < 5).astype(np.float64)


def nll_per_sample(predictions: Predictions) -> Floats:
    """Negative log-likelihood of each sample in nats, (N,)."""
    logs = predictions.label_logs
    return -np.where(np.isneginf(logs), np.log(predictions.least), logs)


@computed_once
def brier_per_sample(predictions: Predictions) -> Floats:
    """Brier score of each sample, (N,), without an (N, K) one-hot array."""
    of_label = predictions.label_probs
    squares = np.empty(len(of_label))
    for block in row_blocks(*predictions.probs.shape):
        squares[block] = row_sums(np.square(predictions.probs[block]))
    return (squares - of_label**2).clip(min=0) + (1 - of_label) ** 2
