"""Inductive Venn-Abers prediction of each class, one class against the others."""

from typing import Any

import numpy as np

from calgrid.calibrators._maps import CLOSE, padded, steps, without_ties
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    map_classes,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register

Point = tuple[float, float]
#: a score this close equals a known one; less than half the distance of two known ones
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


def fit_venn_abers(scores: Array, correct: Mask) -> tuple[Array, Array, Array]:
    """Return ascending distinct scores ``(P,)``, and the rates there with one more wrong and with
    one more correct sample, ``(P,)`` each.

    Parameters
    ----------
    scores : ``(N,)``; those closer than 1e-12 count as one. correct : bool ``(N,)``.
    """
    points, number, right = without_ties(scores, correct)
    # one more wrong sample is one more correct one, mirrored
    lower = 1.0 - with_one_more(number[::-1], (number - right)[::-1])[::-1]
    return points, lower, with_one_more(number, right)


def bounds(scores: Array, known: Array, lower: Array, upper: Array) -> tuple[Array, Array]:
    """Return p0 and p1 at scores ``(N,)``: the rates of the next known score below or here, and of
    the next one here or above.

    Known scores are ``(P,)``, rates ``(P + 1,)``; tensors as in
    :func:`~calgrid.calibrators._maps.bin_of`.
    """
    return steps(scores, known - NEAR, lower), steps(scores, known + NEAR, upper)


def merged(scores: Array, known: Array, lower: Array, upper: Array) -> Array:
    """Return ``p1 / (1 - p0 + p1)``; parameters as of :func:`bounds`."""
    p0, p1 = bounds(scores, known, lower, upper)
    return p1 / (1.0 - p0 + p1)


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
    ) -> History:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        maps = [fit_venn_abers(probabilities[:, k], labels == k) for k in self.classes]
        scores, lower, upper = zip(*maps, strict=True)
        width = max(map(len, scores))
        self.scores = padded(scores, width, np.inf)
        # before the first score, and after the last one
        self.lower = padded([np.append(0.0, each) for each in lower], width + 1)
        self.upper = padded(upper, width + 1, 1.0)
        return {
            "mean_width": float(self._width(logits).mean()),
            "n_points": sum(map(len, scores)),
            "n_absent": logits.shape[1] - len(self.classes),
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        plain = softmax(logits)
        tables = self.scores, self.lower, self.upper
        return map_classes(plain, plain, self.classes, merged, *tables)

    def _width(self, logits: Array) -> Array:
        probabilities, top = softmax(logits), logits.argmax(axis=1)
        widths = np.ones(len(logits))
        for position, label in enumerate(self.classes):
            predicted = top == label
            tables = self.scores[position], self.lower[position], self.upper[position]
            lower, upper = bounds(probabilities[predicted, label], *tables)
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
