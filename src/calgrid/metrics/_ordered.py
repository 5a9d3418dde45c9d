"""Equal-mass bins, with a fixed or data-dependent number of bins, in resamples of sorted samples.

The draws of a repeated sample may be split between two bins.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calgrid.metrics._weighted import Ranks, cumulative

Floats = NDArray[np.float64]


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

    def up_to(
        self, inner: NDArray[Any], ranks: Ranks, holders: NDArray[np.intp], rows: NDArray[np.intp]
    ) -> Floats:
        """Sum over the draws before each of the ranks 0, ``inner`` (Q,), N in each resample of
        ``rows``, (R, Q + 2).
        """
        row = rows[:, None]
        share = 1 - self.less / np.maximum(self.weights[row, holders], 1)
        partial = (inner - ranks.before[row, holders]) * share * self.values[holders]
        last = self.cumulated[row, -1]
        return np.hstack([np.zeros_like(last), self.cumulated[row, holders] + partial, last])


def carry(weights: Floats, values: Floats) -> Carried:
    """``values`` (N,) of samples in resamples with ``weights`` (R, N)."""
    return Carried(values, weights, 0, cumulative(weights * values))


def noise(carried: Carried) -> Carried:
    """Difference between resamples and sample, zero in the mean."""
    return carried._replace(less=1, cumulated=carried.cumulated - cumulative(carried.values[None]))


def equal_runs(n: int, n_bins: int) -> Floats:
    """Inner edges (M - 1,) of M runs of n samples whose lengths differ by at most one, longer ones
    first.
    """
    length, longer = divmod(n, n_bins)
    first = np.arange(1, n_bins)
    return (first * length + np.minimum(first, longer)).astype(np.float64)


def run_gaps(cumulated: Floats, ranks: Ranks, n_bins: int, ends: NDArray[np.intp]) -> Floats:
    """Sum of values in each of M equal runs of each resample, (R, M); of tied samples each has
    their mean, so that their order does not matter.

    Parameters
    ----------
    cumulated : cumulative sums of the values, (R, N + 1). ranks : of the same resamples.
    ends : position after the last of each run of tied samples, (G,).
    """
    n = cumulated.shape[1] - 1
    inner = equal_runs(n, n_bins)
    # with more bins than samples, the last edges are behind the last sample
    holders = np.minimum(ranks.holders(inner), n - 1)
    tie = np.searchsorted(ends, holders, side="right")
    begin, end = np.append(0, ends)[tie], ends[tie]
    before = np.take_along_axis(ranks.before, begin, axis=1)
    drawn = np.take_along_axis(ranks.before, end, axis=1) - before
    low, high = (np.take_along_axis(cumulated, place, axis=1) for place in (begin, end))
    sums = low + (inner - before) / np.maximum(drawn, 1) * (high - low)
    return np.diff(np.hstack([cumulated[:, :1], sums, cumulated[:, -1:]]), axis=1)


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
    separated = _separated(correct, ranks)
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


def _sweep_bins(n: int, n_bins: int) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Sizes (B,) and inner edges (B - 1,) of the bins with the ranks r with floor(r B / n) = i."""
    borders = -(-np.arange(n_bins + 1) * n // n_bins)
    return np.diff(borders), borders[1:-1]


def _separated(correct: Carried, ranks: Ranks) -> NDArray[np.bool_]:
    """Whether all drawn errors precede all drawn correct predictions, (R,)."""
    first = [np.searchsorted(sums, 0, side="right") - 1 for sums in correct.cumulated]
    before = ranks.before[np.arange(len(first)), first]
    return before == ranks.before[:, -1] - correct.cumulated[:, -1]


def _norm(gaps: Floats, sizes: NDArray[Any], n: int, norm: int) -> Floats:
    """Error of each resample, (R,), from the gaps (R, B) of bins with ``sizes`` of ``n`` draws."""
    return np.abs(gaps).sum(axis=1) / n if norm == 1 else np.sqrt((gaps**2 / sizes).sum(axis=1) / n)
