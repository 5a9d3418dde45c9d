"""Calibrators that map the probability of each class to a step function or straight lines."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._binning import lines, padded
from calgrid.calibrators._probabilities import map_classes, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels


class OneVsAllMap(Calibrator):
    """One function for each class that has validation samples; rows are divided by their sums.

    ``points`` and ``rates`` ``(C, ...)`` hold the numbers of all functions, filled up with infinite
    points, which no score passes.
    """

    #: :func:`~calgrid.calibrators._binning.steps` or :func:`~calgrid.calibrators._binning.lines`
    function: Callable[[Array, Array, Array], Array] = staticmethod(lines)
    #: entry of ``fit_history`` for the number of values of all functions, if any
    counted: ClassVar[str | None] = None

    @abstractmethod
    def _fit_class(self, scores: Array, hits: NDArray[np.bool_]) -> tuple[Array, Array]:
        """Return points and values of the function for scores ``(N,)`` of one class, and which
        samples are of that class.
        """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        points, rates = [], []
        for k in self.classes:
            of_class = self._fit_class(np.ascontiguousarray(probabilities[:, k]), labels == k)
            points.append(of_class[0])
            rates.append(of_class[1])
        self.points = padded(points, max(map(len, points)), np.inf)
        self.rates = padded(rates, max(map(len, rates)))
        history = {"n_absent": logits.shape[1] - len(self.classes)}
        if self.counted:
            history[self.counted] = sum(map(len, rates))
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        plain = softmax(logits)
        return map_classes(plain, plain, self.classes, self.function, self.points, self.rates)
