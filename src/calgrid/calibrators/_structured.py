"""Structured scaling: a smoothed temperature scaling first, then a ridge-penalised linear map of its ln p."""

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._linear import LinearMap, fit_linear
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import fit_temperature
from calgrid.calibrators._warnings import temperature_at_bound
from calgrid.calibrators.base import Array, Calibrator, Head, Labels

#: ln of the smallest normal float32, the least ln p
FLOOR = float(np.log(np.finfo(np.float32).tiny))


@dataclass(frozen=True)
class SmoothedTemperature:
    """``(1 - epsilon) softmax(beta z) + epsilon / K``."""

    beta: float
    epsilon: float

    @classmethod
    def fit(cls, logits: Array, labels: Labels) -> tuple[Self, dict[str, Any]]:
        """Return the map of lowest NLL before smoothing, epsilon 1 / (N + 1), and the ``fit_history``."""
        result = fit_temperature(logits, labels)
        epsilon = 1.0 / (len(labels) + 1)
        history = {
            "temperature": result.temperature,
            "beta": result.beta,
            "loss": result.losses,
            "at_lower_bound": result.at_lower_bound,
            "at_upper_bound": result.at_upper_bound,
            "n_infinite_loss": result.n_infinite_loss,
            "warnings": temperature_at_bound(result),
            "epsilon": epsilon,
        }
        return cls(result.beta, epsilon), history

    def __call__(self, logits: Array) -> Array:
        """Return probabilities ``(N, K)`` of logits ``(N, K)`` whose row maximum is 0."""
        mixture = softmax(logits * self.beta)
        mixture *= 1.0 - self.epsilon
        mixture += self.epsilon / logits.shape[1]
        return mixture


class StructuredScaling(Calibrator):
    """What ``svs`` and ``sms`` share; they differ in :meth:`_start`, the identity and its penalties."""

    scale_free = True

    def __init__(self, *, ridge: float = 1.0) -> None:
        super().__init__()
        self.ridge = ridge

    @abstractmethod
    def _start(self, n_classes: int) -> tuple[Array, Array | float]:
        """Return the identity weight and the penalty of its entries, without the factor ``ridge / N``."""

    def _inputs(self, logits: Array) -> Array:
        return np.maximum(np.log(self._smoothed(logits)), FLOOR)

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        n_samples, n_classes = logits.shape
        weight, penalty = self._start(n_classes)
        self._smoothed, history = SmoothedTemperature.fit(logits, labels)
        self._map, fit_history = fit_linear(
            self._inputs(logits),
            labels,
            LinearMap(weight, np.zeros(n_classes)),
            weight_ridge=self.ridge * penalty / n_samples,
            bias_ridge=self.ridge * n_classes / n_samples,
        )
        start = {name: value for name, value in history.items() if name != "loss"}
        return {**start, **fit_history, "warnings": history["warnings"] + fit_history["warnings"]}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return self._map.probabilities(self._inputs(logits))

    def _state(self) -> dict[str, NDArray[Any]]:
        smoothing = np.array([self._smoothed.beta, self._smoothed.epsilon])
        return {"smoothing": smoothing, "weight": self._map.weight, "bias": self._map.bias}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._smoothed = SmoothedTemperature(*state["smoothing"].tolist())
        self._map = LinearMap(state["weight"], state["bias"])
