"""Calibrators that map the confidence, or the probability of each class, to a step function or
straight lines.
"""

from collections.abc import Callable
from typing import ClassVar

import numpy as np

from calgrid.calibrators._binning import lines, padded
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    map_classes,
    softmax,
    top_label,
    top_label_map,
)
from calgrid.calibrators.base import Calibrator


class TopLabelMap(Calibrator):
    """The probability of the predicted class is a function of the confidence; the other classes
    share the rest in proportion to their softmax.

    A subclass sets ``points`` and ``accuracy`` in its fit: those of :attr:`function`.
    """

    #: :func:`~calgrid.calibrators._binning.steps` or :func:`~calgrid.calibrators._binning.lines`
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

    #: :func:`~calgrid.calibrators._binning.steps` or :func:`~calgrid.calibrators._binning.lines`
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
