"""Temperature scaling, then a little of the uniform distribution, so that no probability is 0."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._structured import SmoothedTemperature
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register


@register(
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv 2511.03685; probmetrics",
    needs=("logits",),
    keeps_argmax=True,
    parameters="1",
    stochastic=False,
)
class SmoothedTemperatureScaling(Calibrator):
    """Temperature scaling with Laplace smoothing, ``(1 - e) softmax(z / T) + e / K`` with ``e = 1 / (N + 1)``.

    T is that of lowest validation NLL before the smoothing; N is the number of validation samples. The NLL of a test
    sample is at most ``ln(K (N + 1))``. A class whose logit is -inf gets ``e / K`` too.

    ``fit_history``: that of ``ts``, and ``epsilon``.
    """

    scale_free = True

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        self._map, history = SmoothedTemperature.fit(logits, labels)
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return self._map(logits)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"beta": np.array([self._map.beta]), "epsilon": np.array([self._map.epsilon])}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._map = SmoothedTemperature(state["beta"].item(), state["epsilon"].item())
