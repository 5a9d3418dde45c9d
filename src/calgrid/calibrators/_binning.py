"""Bins of scores in [0, 1] with equal numbers of samples or equal widths, each a sorted array of
inner cuts.

Bins are (low, high]; B - 1 cuts define B bins, from 0 to 1.
"""

from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from calgrid.metrics.binning import inner_edges

Array = NDArray[np.float64]
#: closer scores count as one: a constant added to a row of logits rounds equal ones in other last
#: bits, and the slope between them could overflow
CLOSE = 1e-12
Spacing = Literal["quantile", "width"]


class Counts(NamedTuple):
    """Sums over the samples of each bin, each float64 (B,): number, correct ones, scores."""

    n: Array
    correct: Array
    scores: Array


def distinct(ordered: Array) -> NDArray[np.bool_]:
    """Return which of ascending scores ``(M,)`` are at least 1e-12 above the previous distinct
    score.
    """
    chosen = np.diff(ordered, prepend=-np.inf) >= CLOSE
    ends = np.append(np.flatnonzero(chosen), len(ordered))
    # a chain of close scores may span a wide range
    far = np.flatnonzero(ordered[ends[1:] - 1] - ordered[ends[:-1]] >= CLOSE)
    for begin, end in zip(ends[far].tolist(), ends[far + 1].tolist(), strict=True):
        place = begin + _first_far(ordered[begin:end])
        while place < end:
            chosen[place] = True
            place += _first_far(ordered[place:end])
    return chosen


def _first_far(ordered: Array) -> int:
    """Return the place of the first score that is not close to the first, or the number of all."""
    return int(np.searchsorted(ordered, ordered[0] + CLOSE))


def equal_count_cuts(ordered: Array, n_bins: int, first: NDArray[np.intp] | None = None) -> Array:
    """Return at most ``n_bins - 1`` cuts that split ascending scores ``(N,)`` into nearly equal
    counts.

    A cut is the midpoint of two neighbouring scores. Equal scores stay in one bin (a cut among them
    moves below them), so ties can reduce the number of bins. No bin is empty.

    Parameters
    ----------
    first : places ``(P,)`` of the scores that count as different from the one before, of
        :func:`distinct`; by default all that differ.
    """
    below = np.arange(1, n_bins) * len(ordered) // n_bins
    if first is None:
        below = np.searchsorted(ordered, ordered[below], side="left")
    else:
        below = first[np.searchsorted(first, below, side="right") - 1]
    below = np.unique(below)
    below = below[below > 0]
    return np.unique((ordered[below - 1] + ordered[below]) / 2.0)


def make_cuts(scores: Array, n_bins: int, spacing: Spacing) -> Array:
    """Return cuts ``(<= n_bins - 1,)`` for scores ``(N,)`` in any order."""
    if spacing == "width":
        # a score of 2/10 is in the bin up to 2/10, however it is rounded
        return inner_edges(n_bins) + CLOSE
    ordered = np.sort(scores)
    return equal_count_cuts(ordered, n_bins, np.flatnonzero(distinct(ordered)))


def bin_of(cuts: Array, scores: Array) -> NDArray[np.intp]:
    """Return the bin ``(N,)`` of each score: (low, high]."""
    return np.searchsorted(cuts, scores, side="left")


def count(cuts: Array, scores: Array, correct: Array) -> Counts:
    """Sum numbers, correct predictions and scores ``(N,)`` in each bin."""
    index, n_bins = bin_of(cuts, scores), len(cuts) + 1
    return Counts(
        *(
            np.bincount(index, weight, n_bins).astype(np.float64)
            for weight in (None, correct, scores)
        )
    )


def centres(cuts: Array) -> Array:
    """Return the middle ``(B,)`` of each bin."""
    edges = np.concatenate([[0.0], cuts, [1.0]])
    return (edges[:-1] + edges[1:]) / 2.0


def smoothed_rate(
    counts: Counts, cuts: Array, prior_mean: Array | float, prior_count: float
) -> Array:
    """Return ``(correct + s m) / (n + s)`` ``(B,)`` with s = ``prior_count``, m = ``prior_mean``;
    empty: bin centre.
    """
    total = counts.n + prior_count
    rate = np.divide(
        counts.correct + prior_count * prior_mean, total, out=np.zeros_like(total), where=total > 0
    )
    return np.where(counts.n > 0, rate, centres(cuts))
