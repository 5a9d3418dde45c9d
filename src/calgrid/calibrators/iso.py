"""Isotonic regression of correctness on confidence, applied to the predicted class."""

import importlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._base import Array, Calibrator, Head, Labels
from calgrid.calibrators._probabilities import top_label, top_label_map
from calgrid.registry import register


@register(
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability Estimates, KDD 2002",
    needs=("logits",),
    keeps_argmax=False,
    parameters="<= N",
    stochastic=False,
)
class TopLabelIsotonic(Calibrator):
    """Isotonic regression (pool adjacent violators) from top-label confidence to accuracy.

    Between the fitted points the map is linear, outside them constant. Its values are kept in
    ``[1 / (N + 1), N / (N + 1)]``: blocks that are all right or all wrong would otherwise give probability 0 or 1
    and an infinite NLL. The other classes share the rest in proportion to their softmax, so that a sample whose top
    probability falls low enough may change its predicted class.

    ``fit_history``: ``n_points`` (points that define the map), ``floor`` (1 / (N + 1)).
    """

    def _import_libraries(self) -> None:
        importlib.import_module("sklearn.isotonic")

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        # a second of import, which neither a prediction nor any other calibrator needs
        from sklearn.isotonic import IsotonicRegression  # noqa: PLC0415

        predicted, confidence = top_label(logits)
        model = IsotonicRegression(y_min=0.0, y_max=1.0, out_of_bounds="clip")
        model.fit(confidence, (predicted == labels).astype(np.float64))
        floor = 1.0 / (len(labels) + 1)
        self._confidence = model.X_thresholds_.astype(np.float64)
        self._accuracy = np.clip(model.y_thresholds_.astype(np.float64), floor, 1.0 - floor)
        return {"n_points": len(self._confidence), "floor": floor}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        _, confidence = top_label(logits)
        return top_label_map(logits, np.interp(confidence, self._confidence, self._accuracy))

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"confidence": self._confidence, "accuracy": self._accuracy}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._confidence, self._accuracy = state["confidence"], state["accuracy"]
