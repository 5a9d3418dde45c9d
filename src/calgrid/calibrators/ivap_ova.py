"""Inductive Venn-Abers prediction of each class, one class against the others."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._binning import CLOSE, distinct
from calgrid.calibrators._probabilities import map_classes, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register

Point = tuple[float, float]
#: a score is a known one up to this distance, which is less than half of that of two known ones
NEAR = CLOSE / 4


def with_one_more(number: Array, correct: Array) -> Array:
    """Return, at each ascending distinct score ``(P,)``, the isotonic rate with one more correct
    sample there.

    Algorithms 1 and 2 of the paper: the corners of the cumulative sums' lower convex hull are kept
    on a stack while the added sample moves from score to score. O(P).

    Parameters
    ----------
    number, correct : samples at each score, and correct ones among them, ``(P,)``.
    """
    totals = zip(np.cumsum(number).tolist(), np.cumsum(correct).tolist(), strict=True)
    points: list[Point] = [(-1.0, -1.0), (0.0, 0.0), *totals]
    corners: list[Point] = []
    for point in reversed(points):
        _push(corners, point)
    rates = np.empty(len(number))
    for i in range(len(number)):
        (x0, y0), (x1, y1) = corners[-1], corners[-2]
        rates[i] = (y1 - y0) / (x1 - x0)
        before, here, after = points[i : i + 3]
        # without the step of the added sample, the step of this score starts where it started
        moved = points[i + 1] = before[0] + after[0] - here[0], before[1] + after[1] - here[1]
        if (moved[1] - y0) * (x1 - x0) < (y1 - y0) * (moved[0] - x0):
            corners.pop()
            _push(corners, moved)
    return rates


def _push(corners: list[Point], point: Point) -> None:
    """Put a point on the left of a lower convex hull, whose leftmost corner is the last entry."""
    while len(corners) > 1:
        (x, y), (x0, y0), (x1, y1) = point, corners[-1], corners[-2]
        if (y0 - y) * (x1 - x0) < (y1 - y0) * (x0 - x):
            break
        corners.pop()
    corners.append(point)


def fit_venn_abers(scores: Array, correct: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Return ascending distinct scores ``(P,)``, and the rates there with one more wrong and with
    one more correct sample, ``(P,)`` each.

    Parameters
    ----------
    scores : ``(N,)``; those closer than 1e-12 count as one. correct : bool ``(N,)``.
    """
    order = np.argsort(scores, kind="stable")
    ordered = scores[order]
    first = np.flatnonzero(distinct(ordered))
    number = np.diff(first, append=len(ordered)).astype(np.float64)
    right = np.add.reduceat(correct[order], first, dtype=np.float64)
    # one more wrong sample is one more correct one, mirrored
    lower = 1.0 - with_one_more(number[::-1], (number - right)[::-1])[::-1]
    return ordered[first], lower, with_one_more(number, right)


@register(
    source="Vovk, Petej, Fedorova, Large-scale probabilistic predictors with and without "
    "guarantees of validity, NeurIPS 2015; code ip200/venn-abers",
    keeps_argmax=False,
    parameters="<= 3 K N",
)
class VennAbersOneVsAll(Calibrator):
    """One-vs-all inductive Venn-Abers prediction (IVAP), as in CalArena.

    For each class, isotonic regression is fitted twice with the predicted sample added: as one of
    another class, which gives p0, and as one of the class, which gives p1 >= p0. The probability is
    ``p1 / (1 - p0 + p1)``, which is never 0 or 1; rows are divided by their sums. A class without
    validation samples keeps its probability (ours). One of p0, p1 is a calibrated probability
    whatever the network; their distance (:meth:`width`) says how little the validation samples
    determine it.

    Both rates at all validation scores are computed by the fit, so that a prediction is a look-up.

    ``fit_history``: ``mean_width`` (mean width at the validation samples), ``n_points`` (scores of
    all maps), ``n_absent`` (classes without validation samples).
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        maps = [fit_venn_abers(probabilities[:, k], labels == k) for k in self.classes]
        self.scores, self.lower, self.upper = map(np.concatenate, zip(*maps, strict=True))
        self.ends = np.cumsum([len(scores) for scores, _, _ in maps])
        return {
            "mean_width": float(self._width(logits).mean()),
            "n_points": len(self.scores),
            "n_absent": logits.shape[1] - len(self.classes),
        }

    def _bounds(self, position: int, scores: Array) -> tuple[Array, Array]:
        """Return p0 and p1 ``(N,)`` of the class at a position at scores ``(N,)``."""
        begin = self.ends[position - 1] if position else 0
        points = slice(begin, self.ends[position])
        known = self.scores[points]
        below = np.searchsorted(known - NEAR, scores, "left") - 1
        above = np.searchsorted(known + NEAR, scores, "left")
        lower = np.append(self.lower[points], 0.0)[below]
        upper = np.append(self.upper[points], 1.0)[above]
        return lower, upper

    def _transform(self, logits: Array, features: Array | None) -> Array:
        def merged(position: int, scores: Array) -> Array:
            lower, upper = self._bounds(position, scores)
            return upper / (1.0 - lower + upper)

        return map_classes(logits, self.classes, merged)

    def _module(self, maps: Any) -> Any:
        cuts, rates = [], []
        for begin, end in zip([0, *self.ends[:-1]], self.ends, strict=True):
            known, points = self.scores[begin:end], slice(begin, end)
            # a known score is a piece of its own
            cuts.append(np.stack([known - NEAR, known + NEAR], axis=1).ravel())
            lower = np.repeat(np.append(0.0, self.lower[points]), 2)[1:]
            upper = np.repeat(np.append(self.upper[points], 1.0), 2)[:-1]
            rates.append(upper / (1.0 - lower + upper))
        return maps.per_class(maps.steps, self.classes, self.n_classes, cuts, rates)

    def _width(self, logits: Array) -> Array:
        probabilities, top = softmax(logits), logits.argmax(axis=1)
        widths = np.ones(len(logits))
        for position, label in enumerate(self.classes):
            predicted = top == label
            lower, upper = self._bounds(position, probabilities[predicted, label])
            widths[predicted] = upper - lower
        return widths

    def width(self, logits: Any) -> Array:
        """Return ``p1 - p0`` of the class with the largest logit, ``(N,)`` in [0, 1].

        1 for a class without validation samples. Errors are those of :meth:`predict_proba`.

        Parameters
        ----------
        logits : ``(N, K)`` with the K of the fit.
        """
        self._require_fitted()
        return self._width(self._checked(logits, self.n_classes))
