"""Structured scaling: smoothed temperature scaling, then a ridge-penalised linear map of its ln p."""

from abc import abstractmethod
from typing import Any

import numpy as np

from calgrid.calibrators._linear import LinearMap, fit_linear
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import fit_temperature
from calgrid.calibrators.base import Array, Calibrator, Head, Labels

#: ln of the smallest normal float32, lower bound of ln p
FLOOR = float(np.log(np.finfo(np.float32).tiny))


def fit_smoothed(logits: Array, labels: Labels) -> tuple[Array, dict[str, Any]]:
    """Return beta of lowest NLL and epsilon = 1 / (N + 1) for :func:`smoothed`, and the ``fit_history``."""
    found, epsilon = fit_temperature(logits, labels), 1.0 / (len(labels) + 1)
    history = {**found.history(), "n_infinite_loss": found.n_infinite_loss, "epsilon": epsilon}
    return np.array([found.beta, epsilon]), history


def smoothed(logits: Array, beta: float, epsilon: float) -> Array:
    """Return ``(1 - epsilon) softmax(beta z) + epsilon / K`` ``(N, K)`` of logits whose row maximum is 0."""
    mixture = softmax(logits * beta)
    mixture *= 1.0 - epsilon
    mixture += epsilon / logits.shape[1]
    return mixture


class StructuredScaling(Calibrator):
    """Base class of ``svs`` and ``sms``, which differ in :meth:`_start`."""

    scale_free = True

    def __init__(self, *, ridge: float = 1.0) -> None:
        super().__init__()
        self.ridge = ridge

    @abstractmethod
    def _start(self, n_classes: int) -> tuple[Array, Array | float]:
        """Return the identity map and the penalties of its entries, without the factor ``ridge / N``."""

    def _inputs(self, logits: Array) -> Array:
        return np.maximum(np.log(smoothed(logits, *self.smoothing)), FLOOR)

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        n_samples, n_classes = logits.shape
        weight, penalty = self._start(n_classes)
        self.smoothing, history = fit_smoothed(logits, labels)
        (self.weight, self.bias), fit_history = fit_linear(
            self._inputs(logits),
            labels,
            LinearMap(weight, np.zeros(n_classes)),
            weight_ridge=self.ridge * penalty / n_samples,
            bias_ridge=self.ridge * n_classes / n_samples,
        )
        start = {name: value for name, value in history.items() if name != "loss"}
        return {**start, **fit_history, "warnings": history["warnings"] + fit_history["warnings"]}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return LinearMap(self.weight, self.bias).probabilities(self._inputs(logits))
