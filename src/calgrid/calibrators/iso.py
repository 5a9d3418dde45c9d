"""Isotonic regression of correctness on confidence, applied to the predicted class."""

from typing import Any

import numpy as np

from calgrid.calibrators._isotonic import fit_isotonic
from calgrid.calibrators._probabilities import top_label, top_label_map
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register


@register(
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability Estimates, KDD 2002",
    keeps_argmax=False,
    parameters="<= N",
)
class TopLabelIsotonic(Calibrator):
    """Isotonic regression (pool adjacent violators) from top-label confidence to accuracy.

    The map is linear between the fitted points and constant outside. Its values are kept in
    ``[1 / (N + 1), N / (N + 1)]``: blocks of only correct or only wrong samples would otherwise give probability 0 or 1
    and an infinite NLL. The other classes share the rest in proportion to their softmax, so the predicted class may
    change.

    The softmax of the unscaled logits is calibrated, so the map depends on the scale of the logits.

    ``fit_history``: ``n_points`` (points that define the map), ``floor`` (1 / (N + 1)).
    """

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        predicted, confidence = top_label(logits)
        correct = predicted == labels
        self.confidence, self.accuracy = fit_isotonic(confidence, correct, len(labels))
        return {"n_points": len(self.confidence), "floor": 1.0 / (len(labels) + 1)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        _, confidence = top_label(logits)
        return top_label_map(logits, np.interp(confidence, self.confidence, self.accuracy))
