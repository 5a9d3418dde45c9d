"""Order-based estimators of weighted samples: one row of weights per resample, ones for the plain
estimate.

Weights are how often each sample was drawn. Samples are sorted once; order statistics of resamples
come from cumulative weights. The draws of a repeated sample may be split between two bins.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calgrid.metrics._inputs import Floats, Places


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

    def holders(self, ranks: NDArray[Any], rows: Places | slice = slice(None)) -> Places:
        """Index of the sample at each rank (Q,) in each resample of ``rows``, (R, Q)."""
        shifted = ranks + self._shift[rows]
        position = np.searchsorted(self._ascending, shifted.ravel(), side="right")
        return position.reshape(shifted.shape) - self.before.shape[1] * self._row[rows] - 1


def adaptive_positions(confidence: Floats, ranks: Ranks, n_bins: int) -> Places:
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


class Carried(NamedTuple):
    """Weighted values of samples in resamples.

    Attributes
    ----------
    values : value of each sample, (N,). weights : how often it was drawn, (R, N).
    less : subtracted from the weights: 0, or 1 for the difference between resample and sample.
    cumulated : cumulative sums of (weights - less) * values, (R, N + 1).
    """

    values: Floats
    weights: NDArray[Any]
    less: int
    cumulated: Floats

    def up_to(self, inner: NDArray[Any], ranks: Ranks, holders: Places, rows: Places) -> Floats:
        """Sum over the draws before each of the ranks 0, ``inner`` (Q,), N in each resample of
        ``rows``, (R, Q + 2).
        """
        row = rows[:, None]
        share = 1 - self.less / np.maximum(self.weights[row, holders], 1)
        partial = (inner - ranks.before[row, holders]) * share * self.values[holders]
        last = self.cumulated[row, -1]
        return np.hstack([np.zeros_like(last), self.cumulated[row, holders] + partial, last])


def noise(carried: Carried) -> Carried:
    """Difference between resamples and sample, zero in the mean."""
    return carried._replace(less=1, cumulated=carried.cumulated - cumulative(carried.values[None]))


def run_gaps(cumulated: Floats, ranks: Ranks, n_bins: int, ends: Places) -> Floats:
    """Sum of values in each of M runs of each resample, (R, M).

    Lengths of runs differ by at most one, longer ones first; of tied samples each has their mean,
    so that their order does not matter.

    Parameters
    ----------
    cumulated : cumulative sums of the values, (R, N + 1). ranks : of the same resamples.
    ends : position after the last of each run of tied samples, (G,).
    """
    n = cumulated.shape[1] - 1
    length, longer = divmod(n, n_bins)
    runs = np.arange(1, n_bins)
    inner = (runs * length + np.minimum(runs, longer)).astype(np.float64)
    # with more bins than samples, the last edges are behind the last sample
    holders = np.minimum(ranks.holders(inner), n - 1)
    tie = np.searchsorted(ends, holders, side="right")
    begin, end = np.append(0, ends)[tie], ends[tie]
    before = np.take_along_axis(ranks.before, begin, axis=1)
    drawn = np.take_along_axis(ranks.before, end, axis=1) - before
    low, high = (np.take_along_axis(cumulated, place, axis=1) for place in (begin, end))
    sums = low + (inner - before) / np.maximum(drawn, 1) * (high - low)
    return np.diff(np.hstack([cumulated[:, :1], sums, cumulated[:, -1:]]), axis=1)


def errors(
    gaps: Floats, at_edges: Floats, ranks: Ranks, n_bins: int, ends: Places
) -> dict[str, Floats]:
    """Errors (R,) of equal-mass bins and ``ks`` by metric; others as in :func:`run_gaps`.

    Parameters
    ----------
    gaps : cumulative sums of confidence minus correct, (R, N + 1).
    at_edges : those at the edges of :func:`adaptive_positions`, (R, M + 1).
    """
    n = gaps.shape[1] - 1
    there = np.take(gaps, ends, axis=1) if len(ends) < n else gaps[:, 1:]
    return {
        "aece": np.abs(np.diff(at_edges, axis=1)).sum(axis=1) / n,
        "aece_eq": np.abs(run_gaps(gaps, ranks, n_bins, ends)).sum(axis=1) / n,
        "ks": np.maximum(np.abs(there.max(axis=1)), np.abs(there.min(axis=1))) / n,
    }


def sweep(correct: Carried, ranks: Ranks, carried: tuple[Carried, ...], norm: int) -> list[Floats]:
    """Error of each of ``carried``, (R,), with the largest number of equal bins with non-decreasing
    accuracies.

    Numbers of bins b are tried from 1 upwards until accuracy decreases between neighbours; bin i
    has the ranks r with floor(r b / N) = i. If all errors come before all correct predictions,
    accuracy never decreases.

    Parameters
    ----------
    correct : correct predictions, in ascending order of confidence. ranks, carried : of the same
        resamples.
    norm : norm of the gaps, 1 or 2.
    """
    resamples, n = correct.weights.shape
    # whether all drawn errors precede all drawn correct predictions
    first = [np.searchsorted(sums, 0, side="right") - 1 for sums in correct.cumulated]
    before = ranks.before[np.arange(resamples), first]
    separated = before == ranks.before[:, -1] - correct.cumulated[:, -1]
    errors = [np.empty(resamples) for _ in carried]
    for values, one in zip(errors, carried, strict=True):
        gaps = np.diff(one.cumulated[separated], axis=1)
        values[separated] = _norm(gaps, np.maximum(correct.weights[separated], 1), n, norm)
    most = np.ones(resamples, np.intp)
    rows, n_bins = np.flatnonzero(~separated), 2
    while len(rows) and n_bins <= n:
        size, inner = _sweep_bins(n, n_bins)
        sums = correct.up_to(inner, ranks, ranks.holders(inner, rows), rows)
        rises = (np.diff(np.diff(sums, axis=1) / size, axis=1) >= 0).all(axis=1)
        rows = rows[rises]
        most[rows] = n_bins
        n_bins += 1
    for n_bins in np.unique(most[~separated]).tolist():
        rows = np.flatnonzero(~separated & (most == n_bins))
        size, inner = _sweep_bins(n, n_bins)
        holders = ranks.holders(inner, rows)
        for values, one in zip(errors, carried, strict=True):
            gaps = np.diff(one.up_to(inner, ranks, holders, rows), axis=1)
            values[rows] = _norm(gaps, size, n, norm)
    return errors


def _sweep_bins(n: int, n_bins: int) -> tuple[Places, Places]:
    """Sizes (B,) and inner edges (B - 1,) of the bins with the ranks r with floor(r B / n) = i."""
    borders = -(-np.arange(n_bins + 1) * n // n_bins)
    return np.diff(borders), borders[1:-1]


def _norm(gaps: Floats, sizes: NDArray[Any], n: int, norm: int) -> Floats:
    """Error of each resample, (R,), from the gaps (R, B) of bins with ``sizes`` of ``n`` draws."""
    return np.abs(gaps).sum(axis=1) / n if norm == 1 else np.sqrt((gaps**2 / sizes).sum(axis=1) / n)


def auroc(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """P(positive > negative) + P(equal) / 2 in each resample, (R,).

    Parameters
    ----------
    positive, negative : ascending scores (n,) and (m,).
    positives_before, negatives_before : their cumulative weights, (R, n + 1) and (R, m + 1).
    """
    weights = np.diff(positives_before, axis=1)
    below = _before(negative, positive, negatives_before, "left")
    not_above = _before(negative, positive, negatives_before, "right")
    wins = np.einsum("rn,rn->r", weights, below) + np.einsum("rn,rn->r", weights, not_above)
    return wins / (2 * len(positive) * len(negative))


def share_kept(
    positive: Floats, negative: Floats, positives_before: Floats, negatives_before: Floats
) -> Floats:
    """Fraction of negatives at or above the largest threshold that keeps at least 95 % of the
    positives, (R,).

    Arguments as in :func:`auroc`. In integer arithmetic, because 0.95 * n may be rounded up.
    """
    rank = np.array([len(positive) - math.ceil(95 * len(positive) / 100)], dtype=np.float64)
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
    rank = np.array([math.ceil(95 * len(negative) / 100) - 1], dtype=np.float64)
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
