"""Order-based estimators over weighted samples: one row of weights a resample, a row of ones for the plain estimate.

Weights are how often each sample was drawn, so a resample is never sorted again: its order statistics are read from
cumulative weights over samples that were sorted once.
"""

import math

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cumulative(weights: Floats) -> Floats:
    """Weight before each sample and in total, float64 (R, N + 1), from weights (R, N)."""
    sums = np.zeros((weights.shape[0], weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def order_statistic(before: Floats, ranks: Floats) -> NDArray[np.intp]:
    """Index of the sample that holds each rank in each resample, (R, Q).

    Parameters
    ----------
    before : cumulative weights (R, N + 1).
    ranks : (Q,) from 0 for the smallest to total weight - 1 for the largest.
    """
    n_rows, width = before.shape
    # each row is shifted past the one before it: one search over all rows instead of one a row
    shift = (before[0, -1] + 1) * np.arange(n_rows)[:, None]
    found = np.searchsorted((before + shift).ravel(), (ranks[None, :] + shift).ravel(), side="right")
    return found.reshape(n_rows, -1) - width * np.arange(n_rows)[:, None] - 1


def adaptive_gaps(confidence: Floats, correct: Floats, weights: Floats, n_bins: int) -> Floats:
    """Sum of confidence - correct over each equal-mass bin, (R, M), in the form of focal_calibration.

    Bin edges interpolate the sorted confidences at ranks 0, N/M, ..., N; bins are (low, high], so the lowest
    confidence (with its ties) is in no bin, and ties merge bins.

    Parameters
    ----------
    confidence, correct : (N,) in ascending order of confidence.
    weights : (R, N) in that order, each row summing to N.
    """
    n = len(confidence)
    ranks = np.linspace(0, n, n_bins + 1)
    below = np.minimum(np.floor(ranks), n - 1)
    before = cumulative(weights)
    low = confidence[order_statistic(before, below)]
    high = confidence[order_statistic(before, np.minimum(below + 1, n - 1))]
    edges = (high - low) * (ranks - below) + low
    position = np.searchsorted(confidence, edges, side="right")
    gap_before = cumulative(weights * (confidence - correct))
    return np.diff(np.take_along_axis(gap_before, position, axis=1), axis=1)


def auroc(positive: Floats, negative: Floats, weights: Floats, negatives_before: Floats) -> Floats:
    """P(positive > negative) + P(equal) / 2 in each resample, (R,).

    Parameters
    ----------
    positive, negative : ascending scores (n,) and (m,).
    weights : weights (R, n) of the positive scores.
    negatives_before : cumulative weights (R, m + 1) of the negative scores.
    """
    below = np.take(negatives_before, np.searchsorted(negative, positive, side="left"), axis=1)
    not_above = np.take(negatives_before, np.searchsorted(negative, positive, side="right"), axis=1)
    wins = np.einsum("rn,rn->r", weights, below) + np.einsum("rn,rn->r", weights, not_above)
    return wins / (2 * len(positive) * len(negative))


def share_kept(positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats) -> Floats:
    """Share of negatives at or above the largest threshold that keeps at least 95 % of the positives, (R,).

    Scores ascending, (n,) and (m,), with their cumulative weights (R, n + 1) and (R, m + 1).
    """
    rank = np.array([len(positive) - _needed(len(positive))], dtype=np.float64)
    threshold = positive[order_statistic(positives_before, rank)]
    position = np.searchsorted(negative, threshold, side="left")
    below = np.take_along_axis(negatives_before, position, axis=1)[:, 0]
    return (len(negative) - below) / len(negative)


def share_flagged(positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats) -> Floats:
    """Share of positives at or below the smallest threshold that finds at least 95 % of the negatives, (R,).

    Arguments as in :func:`share_kept`.
    """
    rank = np.array([_needed(len(negative)) - 1], dtype=np.float64)
    threshold = negative[order_statistic(negatives_before, rank)]
    position = np.searchsorted(positive, threshold, side="right")
    return np.take_along_axis(positives_before, position, axis=1)[:, 0] / len(positive)


def _needed(n: int) -> int:
    """Least number that is at least 95 % of ``n``; in this order, as 0.95 * n may exceed the whole number it is."""
    return math.ceil(95 * n / 100)
