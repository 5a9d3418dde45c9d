"""Temperature scaling: one temperature for all samples, at the minimum of the NLL or of another
objective.
"""

from typing import Any, Literal

import numpy as np

from calgrid.calibrators._objectives import Evidence, Objective, build_objective
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import BETA_BOUNDS, TemperatureFit, fit_temperature
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register

#: temperatures of the scan, evenly spaced in ln T
N_SCANNED = 100
#: golden-section steps, which reduce a bracket of two scan intervals to 1e-8 of T
N_STEPS = 35
_SHRINK = (np.sqrt(5.0) - 1.0) / 2.0
#: smaller decreases are due to rounding
TOLERANCE = 1e-12
#: relative distance within which a temperature is at its bound
_AT_BOUND = 1e-6


def search_temperature(logits: Array, labels: Labels, objective: Objective) -> TemperatureFit:
    """Minimise an objective over T in [0.05, 100]: the best of 100 log-spaced T, refined between
    its neighbours.

    If no loss is lower than at T = 1, T stays 1. Losses are those of the scan by ascending T, then
    of the section. Logits ``(N, K)`` have row maximum 0; labels are ``(N,)``.
    """
    lower, upper = BETA_BOUNDS
    evidence = Evidence.gather(logits, labels, lower, objective.reach * upper)
    tried: dict[float, float] = {}

    def loss(log_temperature: float) -> float:
        if log_temperature not in tried:
            tried[log_temperature] = objective(
                evidence, np.full(len(labels), np.exp(-log_temperature))
            )[0]
        return tried[log_temperature]

    grid = np.linspace(-np.log(upper), -np.log(lower), N_SCANNED)
    best = int(np.argmin([loss(float(point)) for point in grid]))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, N_SCANNED - 1)])
    for _ in range(N_STEPS):
        width = _SHRINK * (right - left)
        if loss(right - width) <= loss(left + width):
            right = left + width
        else:
            left = right - width
    found = min(tried, key=lambda point: tried[point])
    # for a flat loss, such as that of equal logits, T stays 1
    found = found if tried[found] < loss(0.0) - TOLERANCE else 0.0
    return TemperatureFit(
        beta=float(np.clip(np.exp(-found), lower, upper)),
        loss=list(tried.values()),
        at_lower_bound=bool(grid[-1] - found < _AT_BOUND),
        at_upper_bound=bool(found - grid[0] < _AT_BOUND),
    )


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, Eq. 9",
    keeps_argmax=True,
    parameters="1",
    limits={"sigma": "(0, inf)", "delta": "(0, inf)", "alpha": "[0, 1)"},
)
class TemperatureScaling(Calibrator):
    """Temperature scaling, ``softmax(z / T)`` with the T of lowest validation NLL.

    The authors' code runs L-BFGS without line search on T for at most 200 steps and can stop short;
    the loss is convex in ``beta = 1 / T``, where Newton iterations reach the minimum to 1e-10.

    ``objective`` replaces the NLL by one of those of the SMART paper's Table 3 (see
    :mod:`calgrid.calibrators._objectives`). Most are not convex: 100 temperatures, evenly spaced in
    ln T, are tried, and golden section refines the best between its neighbours. T is searched from
    0.05 to 100 in units of the spread of the logits (``logit_unit``).

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (the objective at each temperature tried),
    ``at_lower_bound`` and ``at_upper_bound`` (beta has its minimum or maximum), and for the NLL
    ``n_infinite_loss`` (omitted samples, whose label has the logit -inf).

    Parameters
    ----------
    objective : objective that the temperature minimises.
    sigma : width of a soft bin of ``softece``, ``charbonnier`` and ``pointwise``, in units of
        confidence.
    delta : half-width of the smooth part of the penalty of ``charbonnier`` and ``pointwise``.
    alpha : label smoothing of ``ls``.
    """

    scale_free = True

    def __init__(
        self,
        *,
        objective: Literal[
            "nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"
        ] = "nll",
        sigma: float = 0.05,
        delta: float = 1e-3,
        alpha: float = 0.05,
    ) -> None:
        super().__init__()
        self.objective, self.sigma, self.delta, self.alpha = objective, sigma, delta, alpha

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        if self.objective == "nll":
            found = fit_temperature(logits, labels)
            self.beta = found.beta
            return {**found.history(), "n_infinite_loss": found.n_infinite_loss}
        objective = build_objective(
            self.objective, sigma=self.sigma, delta=self.delta, alpha=self.alpha
        )
        found = search_temperature(logits, labels, objective)
        self.beta = found.beta
        return found.history()

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return softmax(logits * self.beta)
