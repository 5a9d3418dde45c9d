"""Temperature scaling: one temperature for all samples, at the minimum of the NLL or of another objective."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._objectives import build_objective
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import TemperatureFit, fit_temperature
from calgrid.calibrators._temperature_search import TemperatureSearch, search_temperature
from calgrid.calibrators._warnings import temperature_at_bound
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, Eq. 9",
    needs=("logits",),
    keeps_argmax=True,
    parameters="1",
    stochastic=False,
    limits={"sigma": "(0, inf)", "delta": "(0, inf)", "alpha": "[0, 1)"},
)
class TemperatureScaling(Calibrator):
    """Temperature scaling, ``softmax(z / T)`` with the T of lowest validation NLL.

    The authors' code runs L-BFGS without line search on T for at most 200 steps and can stop short; the loss is
    convex in ``beta = 1 / T``, where Newton iterations reach the minimum to 1e-10.

    ``objective`` replaces the NLL by one of those of the SMART paper's Table 3 (see
    :mod:`calgrid.calibrators._objectives`). Most are not convex: 100 temperatures, evenly spaced in ln T, are tried,
    and golden section refines the best between its neighbours. T is looked for from 0.05 to 100 in units of the
    logits' spread (:func:`~calgrid.calibrators._unit.logit_unit`).

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (the objective at each temperature tried), ``at_lower_bound``
    and ``at_upper_bound`` (beta is the smallest or the largest that is looked for), and for the NLL
    ``n_infinite_loss`` (samples left out, label's logit -inf).

    Parameters
    ----------
    objective : what the temperature minimises.
    sigma : width of a soft bin of ``softece``, ``charbonnier`` and ``pointwise``, in units of confidence.
    delta : half-width of the smooth part of the penalty of ``charbonnier`` and ``pointwise``.
    alpha : label smoothing of ``ls``.
    """

    scale_free = True

    def __init__(
        self,
        *,
        objective: Literal["nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"] = "nll",
        sigma: float = 0.05,
        delta: float = 1e-3,
        alpha: float = 0.05,
    ) -> None:
        super().__init__()
        self.objective, self.sigma, self.delta, self.alpha = objective, sigma, delta, alpha

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        history: dict[str, Any] = {}
        if self.objective == "nll":
            fit = fit_temperature(logits, labels)
            result: TemperatureFit | TemperatureSearch = fit
            history["n_infinite_loss"] = fit.n_infinite_loss
        else:
            objective = build_objective(self.objective, sigma=self.sigma, delta=self.delta, alpha=self.alpha)
            result = search_temperature(logits, labels, objective)
        self._beta = result.beta
        return {
            "temperature": 1.0 / result.beta,
            "beta": result.beta,
            "loss": result.losses,
            "at_lower_bound": result.at_lower_bound,
            "at_upper_bound": result.at_upper_bound,
            "warnings": temperature_at_bound(result),
            **history,
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return softmax(logits * self._beta)

    def _state(self) -> dict[str, NDArray[Any]]:
        return {"beta": np.array([self._beta])}

    def _load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._beta = state["beta"].item()
