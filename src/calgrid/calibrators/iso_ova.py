"""Isotonic regression of each class's probability, one class against the others."""

from typing import Any

import numpy as np

from calgrid.calibrators._probabilities import map_classes, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.calibrators.iso import fit_isotonic
from calgrid.components.registry import register


@register(
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability "
    "Estimates, KDD 2002",
    keeps_argmax=False,
    parameters="<= K N",
)
class IsotonicRegressionOneVsAll(Calibrator):
    """One-vs-all isotonic regression: a non-decreasing map for each class's probability, rows
    divided by their sums.

    The maps are linear between their points and constant outside. Their values are kept in ``[1 /
    (N + 1), N / (N + 1)]`` (ours): probabilities of 0 would make the NLL infinite. If K is close to
    N, the sum of these minima is not small. A class without validation samples keeps its
    probability.

    Without these bounds each map is that of scikit-learn's ``IsotonicRegression`` in 64 bits; in 32
    bits it merges scores closer than 1e-6.

    ``fit_history``: ``n_points`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    #: fits the map of a class, as in ``iso``
    fit_map = staticmethod(fit_isotonic)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        maps = [self.fit_map(probabilities[:, k], labels == k, len(labels)) for k in self.classes]
        self.scores, self.rates = (np.concatenate(parts) for parts in zip(*maps, strict=True))
        self.ends = np.cumsum([len(scores) for scores, _ in maps])
        return {"n_points": len(self.scores), "n_absent": logits.shape[1] - len(self.classes)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        bounds = np.concatenate([[0], self.ends])

        def rate(position: int, scores: Array) -> Array:
            points = slice(bounds[position], bounds[position + 1])
            return np.interp(scores, self.scores[points], self.rates[points])

        return map_classes(logits, self.classes, rate)

    def _module(self, maps: Any) -> Any:
        bounds = self.ends[:-1]
        scores, rates = np.split(self.scores, bounds), np.split(self.rates, bounds)
        return maps.per_class(maps.lines, self.classes, self.n_classes, scores, rates)
