"""Isotonic regression of each class's probability, one class against the others."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._isotonic import fit_isotonic
from calgrid.calibrators._one_vs_all import map_classes
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register


@register(
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability Estimates, KDD 2002",
    needs=("logits",),
    keeps_argmax=False,
    parameters="<= K N",
    stochastic=False,
)
class IsotonicRegressionOneVsAll(Calibrator):
    """One-vs-all isotonic regression: a non-decreasing map for each class's probability, rows divided by their sums.

    The maps are linear between their points and constant outside. Their values are kept in
    ``[1 / (N + 1), N / (N + 1)]`` (ours): a class that the raw map rules out would make the NLL infinite. With K near
    N, the sum of these floors is no longer small. A class without validation samples keeps its probability.

    What is calibrated is the softmax of the logits as they come: logits of another scale give another map.

    ``fit_history``: ``n_points`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        probabilities = softmax(logits)
        self._classes = np.unique(labels)
        maps = [fit_isotonic(probabilities[:, k], labels == k, len(labels)) for k in self._classes]
        self._scores, self._rates = (np.concatenate(parts) for parts in zip(*maps, strict=True))
        self._ends = np.cumsum([len(scores) for scores, _ in maps])
        return {"n_points": len(self._scores), "n_absent": logits.shape[1] - len(self._classes)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        bounds = np.concatenate([[0], self._ends])

        def rate(position: int, scores: Array) -> Array:
            points = slice(bounds[position], bounds[position + 1])
            return np.interp(scores, self._scores[points], self._rates[points])

        return map_classes(logits, self._classes, rate)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"classes": self._classes, "ends": self._ends, "scores": self._scores, "rates": self._rates}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._classes, self._ends = state["classes"], state["ends"]
        self._scores, self._rates = state["scores"], state["rates"]
