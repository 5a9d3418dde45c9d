"""Temperature scaling: one temperature for all samples, at the minimum of the negative log-likelihood."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._base import Array, Calibrator, Head, Labels
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import fit_temperature
from calgrid.registry import register


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, Eq. 9",
    needs=("logits",),
    keeps_argmax=True,
    parameters="1",
    stochastic=False,
)
class TemperatureScaling(Calibrator):
    """Temperature scaling, ``softmax(z / T)`` with the T of lowest validation NLL.

    The authors' code runs L-BFGS without line search on T for at most 200 steps and can stop short; the loss is
    convex in ``beta = 1 / T``, where Newton iterations reach the minimum to 1e-10.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (NLL in nats at each beta tried), ``at_lower_bound`` and
    ``at_upper_bound`` (beta stopped at 0.01 or 20), ``n_infinite_loss`` (samples left out, label's logit -inf).
    """

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        result = fit_temperature(logits, labels)
        self._beta = result.beta
        return {
            "temperature": result.temperature,
            "beta": result.beta,
            "loss": result.losses,
            "at_lower_bound": result.at_lower_bound,
            "at_upper_bound": result.at_upper_bound,
            "n_infinite_loss": result.n_infinite_loss,
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return softmax(logits * self._beta)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"beta": np.array([self._beta])}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._beta = state["beta"].item()
