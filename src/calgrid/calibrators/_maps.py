"""Bins of scores in [0, 1], step functions and straight lines of scores, and the calibrators that
map the confidence, or the probability of each class, by one.

Bins have equal numbers of samples or equal widths, and are a sorted array of inner cuts. They are
(low, high]; B - 1 cuts define B bins, from 0 to 1.
"""

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

import numpy as np

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    Places,
    columns,
    is_tensor,
    map_classes,
    namespace,
    softmax,
    top_label,
    top_label_map,
)
from calgrid.calibrators.base import Calibrator
from calgrid.metrics.binning import BinSums, inner_edges, sums_of

#: closer scores count as one: a constant added to a row of logits rounds equal ones in other last
#: bits, and the slope between them could overflow
CLOSE = 1e-12
Spacing = Literal["quantile", "width"]


def distinct(ordered: Array) -> Mask:
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


def without_ties(scores: Array, correct: Mask) -> tuple[Array, Array, Array]:
    """Return the ascending distinct scores of ``(M,)``, and for each the numbers of samples and of
    correct ones, float64 ``(P,)`` each. Scores closer than 1e-12 count as one.

    Parameters
    ----------
    scores : ``(M,)``. correct : bool ``(M,)``.
    """
    order = np.argsort(scores, kind="stable")
    ordered, correct = scores[order], correct[order]
    del order  # M may be N K (all pairs of sample and class), so arrays are freed early
    first = np.flatnonzero(distinct(ordered))
    points, number = ordered[first], np.diff(first, append=len(ordered)).astype(np.float64)
    return points, number, np.add.reduceat(correct, first, dtype=np.float64)


def equal_count_cuts(ordered: Array, n_bins: int, first: Places | None = None) -> Array:
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


def bin_of(cuts: Array, scores: Array, right: bool = False) -> Places:
    """Return the bin of each score: (low, high], or [low, high) with ``right``.

    Cuts are ``(B - 1,)`` and scores of any shape; as tensors, also cuts ``(C, B - 1)`` for scores
    ``(N, C)``.
    """
    if not is_tensor(scores):
        return np.searchsorted(cuts, scores, side="right" if right else "left")
    search = namespace(scores).searchsorted
    if cuts.ndim == 1:
        return search(cuts, scores, right=right)
    return search(cuts, columns(scores), right=right).T


def look_up(table: Array, places: Places) -> Array:
    """Return the entries of a table ``(B,)`` at places; of a tensor ``(C, B)``, at ``(N, C)``."""
    return table[places] if table.ndim == 1 else namespace(table).gather(table, 1, places.T).T


def steps(scores: Array, cuts: Array, values: Array) -> Array:
    """Return the value of each score's bin; values are ``(B,)``, or ``(C, B)`` as in
    :func:`bin_of`.
    """
    return look_up(values, bin_of(cuts, scores))


def lines(scores: Array, points: Array, values: Array, /) -> Array:
    """Return functions that are linear between ascending points and constant outside, as
    ``np.interp``; points and values are ``(P,)``, or ``(C, P)`` as in :func:`bin_of`.
    """
    if not is_tensor(scores):
        return np.interp(scores, points, values)
    torch = namespace(scores)
    slopes = torch.nn.functional.pad(torch.diff(values) / torch.diff(points), (1, 1))
    starts, heights = (
        torch.concatenate([each[..., :1], each], dim=-1) for each in (points, values)
    )
    place = bin_of(points, scores)
    return look_up(heights, place) + look_up(slopes, place) * (scores - look_up(starts, place))


def padded(rows: Sequence[Array], width: int, fill: float | None = None) -> Array:
    """Return rows of up to ``width`` numbers as ``(C, width)``, filled up with a number, or each
    with its last.
    """
    table = np.empty((len(rows), width))
    for place, row in enumerate(rows):
        table[place] = row[-1] if fill is None else fill
        table[place, : len(row)] = row
    return table


def count(cuts: Array, scores: Array, correct: Array) -> BinSums:
    """Sum numbers, scores and correct predictions ``(N,)`` in each bin."""
    return sums_of(bin_of(cuts, scores), len(cuts) + 1, scores, correct)


def centres(cuts: Array) -> Array:
    """Return the middle ``(B,)`` of each bin."""
    edges = np.concatenate([[0.0], cuts, [1.0]])
    return (edges[:-1] + edges[1:]) / 2.0


def smoothed_rate(
    sums: BinSums, cuts: Array, prior_mean: Array | float, prior_count: float
) -> Array:
    """Return ``(correct + s m) / (n + s)`` ``(B,)`` with s = ``prior_count``, m = ``prior_mean``;
    empty: bin centre.
    """
    total = sums.count + prior_count
    rate = np.divide(
        sums.correct + prior_count * prior_mean, total, out=np.zeros_like(total), where=total > 0
    )
    return np.where(sums.count > 0, rate, centres(cuts))


class TopLabelMap(Calibrator):
    """The probability of the predicted class is a function of the confidence; the other classes
    share the rest in proportion to their softmax.

    A subclass sets ``points`` and ``accuracy`` in its fit: those of :attr:`function`.
    """

    #: :func:`steps` or :func:`lines`
    function = staticmethod(lines)
    points: Array
    accuracy: Array

    def _transform(self, logits: Array, features: Array | None) -> Array:
        _, confidence = top_label(logits)
        return top_label_map(logits, self.function(confidence, self.points, self.accuracy))


class OneVsAllMap(Calibrator):
    """One function for each class that has validation samples; rows are divided by their sums.

    ``points`` and ``rates`` ``(C, ...)`` hold the numbers of all functions, filled up with infinite
    points, which no score passes.
    """

    #: :func:`steps` or :func:`lines`
    function = staticmethod(lines)
    #: fits the function of one class: scores ``(N,)`` and its samples -> points and values
    fit_map: Callable[[Array, Mask], tuple[Array, Array]]
    #: entry of ``fit_history`` for the number of values of all functions, if any
    counted: ClassVar[str | None] = None

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        fits = [
            self.fit_map(np.ascontiguousarray(probabilities[:, k]), labels == k)
            for k in self.classes
        ]
        points, rates = zip(*fits, strict=True)
        self.points = padded(points, max(map(len, points)), np.inf)
        self.rates = padded(rates, max(map(len, rates)))
        history = {"n_absent": logits.shape[1] - len(self.classes)}
        if self.counted:
            history[self.counted] = sum(map(len, rates))
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        plain = softmax(logits)
        return map_classes(plain, plain, self.classes, self.function, self.points, self.rates)
