"""Order-based estimators of weighted samples: one row of weights per resample, ones for the plain
estimate.

Weights are how often each sample was drawn. Samples are sorted once; order statistics of resamples
come from cumulative weights.
"""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def cumulative(weights: Floats) -> Floats:
    """Weight before each sample and in total, float64 (R, N + 1), from weights (R, N)."""
    sums = np.zeros((weights.shape[0], weights.shape[1] + 1))
    np.cumsum(weights, axis=1, out=sums[:, 1:])
    return sums


def cumulative_draws(draws: NDArray[np.int64], values: Floats | None = None) -> Floats:
    """:func:`cumulative` of ``draws`` (R, N) times ``values`` (N,) in [-1, 1], or of the draws.

    Sums of integers take an eighth of the time. So values are multiples of the smallest power of
    two of which N draws fit into 64 bits: 2^-46 for 50,000 draws, less than sums of floating-point
    numbers lose.

    Parameters
    ----------
    draws : how often each sample was drawn, each row with the sum N.
    """
    n = draws.shape[1]
    unit = 1.0 if values is None else 2.0 ** (n.bit_length() - 62)
    if values is not None:
        draws = draws * np.rint(values / unit).astype(np.int64)
    sums = np.zeros((len(draws), n + 1), np.int64)
    np.cumsum(draws, axis=1, out=sums[:, 1:])
    return sums * unit


class Ranks:
    """Resamples of sorted samples addressed by rank, from 0 for the smallest drawn to N - 1 for the
    largest.

    Parameters
    ----------
    before : cumulative weights (R, N + 1), all rows with the same total.
    """

    def __init__(self, before: Floats) -> None:
        self.before = before
        # each row is shifted beyond the previous one: one search over all rows instead of one per
        # row
        self._row = np.arange(len(before))[:, None]
        self._shift = (before[0, -1] + 1) * self._row
        self._ascending = (before + self._shift).ravel()

    def holders(
        self, ranks: NDArray[Any], rows: NDArray[np.intp] | slice = slice(None)
    ) -> NDArray[np.intp]:
        """Index of the sample at each rank (Q,) in each resample of ``rows``, (R, Q)."""
        shifted = ranks + self._shift[rows]
        position = np.searchsorted(self._ascending, shifted.ravel(), side="right")
        return position.reshape(shifted.shape) - self.before.shape[1] * self._row[rows] - 1


def largest_at(sums: Floats, ends: NDArray[np.intp]) -> Floats:
    """Largest absolute value, (R,), of cumulative sums (R, N + 1) at the ends of
    ties.
    """
    tied = len(ends) < sums.shape[1] - 1
    there = np.take(sums, ends, axis=1) if tied else sums[:, 1:]
    return np.maximum(np.abs(there.max(axis=1)), np.abs(there.min(axis=1)))


def adaptive_positions(confidence: Floats, ranks: Ranks, n_bins: int) -> NDArray[np.intp]:
    """Positions of the edges of equal-mass bins in the sorted samples, (R, M + 1), as in
    focal_calibration.

    Bin edges interpolate the sorted confidences at ranks 0, N/M, ..., N; bins are (low, high], so
    the lowest confidence (with its ties) is in no bin, and ties merge bins.

    Parameters
    ----------
    confidence : (N,) in ascending order. ranks : of the resamples of these samples.
    """
    n = len(confidence)
    edges = np.linspace(0, n, n_bins + 1)
    below = np.minimum(np.floor(edges), n - 1)
    low = confidence[ranks.holders(below)]
    high = confidence[ranks.holders(np.minimum(below + 1, n - 1))]
    return np.searchsorted(confidence, (high - low) * (edges - below) + low, side="right")


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


def share_kept(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """Fraction of negatives at or above the largest threshold that keeps at least 95 % of the
    positives, (R,).

    Scores ascending, (n,) and (m,), with their cumulative weights (R, n + 1) and (R, m + 1).
    """
    rank = np.array([len(positive) - _needed(len(positive))], dtype=np.float64)
    threshold = positive[Ranks(positives_before).holders(rank)]
    position = np.searchsorted(negative, threshold, side="left")
    below = np.take_along_axis(negatives_before, position, axis=1)[:, 0]
    return (len(negative) - below) / len(negative)


def share_flagged(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """Fraction of positives at or below the smallest threshold that finds at least 95 % of the
    negatives, (R,).

    Arguments as in :func:`share_kept`.
    """
    rank = np.array([_needed(len(negative)) - 1], dtype=np.float64)
    threshold = negative[Ranks(negatives_before).holders(rank)]
    position = np.searchsorted(positive, threshold, side="right")
    return np.take_along_axis(positives_before, position, axis=1)[:, 0] / len(positive)


def precision_kept(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """Mean over the positives of the share of positives among all scores at or above theirs, (R,).

    Arguments as in :func:`share_kept`.
    """
    hits = len(positive) - _before(positive, positive, positives_before, "left")
    others = len(negative) - _before(negative, positive, negatives_before, "left")
    return _mean_precision(positives_before, hits, others)


def precision_flagged(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """Mean over the negatives of the share of negatives among all scores at or below theirs, (R,).

    Arguments as in :func:`share_kept`.
    """
    hits = _before(negative, negative, negatives_before, "right")
    others = _before(positive, negative, positives_before, "right")
    return _mean_precision(negatives_before, hits, others)


def _before(
    ascending: Floats, thresholds: Floats, before: Floats, side: Literal["left", "right"]
) -> Floats:
    return np.take(before, np.searchsorted(ascending, thresholds, side=side), axis=1)


def _mean_precision(before: Floats, hits: Floats, others: Floats) -> Floats:
    precision = np.divide(hits, hits + others, out=np.zeros_like(hits), where=hits > 0)
    return np.einsum("rn,rn->r", np.diff(before, axis=1), precision) / before[:, -1]


def _needed(n: int) -> int:
    """Smallest integer of at least 95 % of ``n``, in integer arithmetic because 0.95 * n may be
    rounded up.
    """
    return math.ceil(95 * n / 100)
