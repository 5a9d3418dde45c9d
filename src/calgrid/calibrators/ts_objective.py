"""One temperature at the minimum of another objective than the NLL."""

from typing import Literal

import numpy as np

from calgrid.calibrators._objectives import Objective, TopLabelInputs, build_objective
from calgrid.calibrators._probabilities import Array, Labels
from calgrid.calibrators._temperature import BETA_BOUNDS, TemperatureFit, beta_bounds
from calgrid.calibrators.ts import TemperatureScaling
from calgrid.components.registry import register

#: temperatures of the scan, evenly spaced in ln T
N_SCANNED = 100
#: golden-section steps, which reduce a bracket of two scan intervals to 1e-8 of T
N_STEPS = 35
_SHRINK = (np.sqrt(5.0) - 1.0) / 2.0
#: smaller decreases are due to rounding
TOLERANCE = 1e-12
#: and these are due to the interpolation of objectives between other temperatures
INTERPOLATED = 1e-6
#: relative distance within which a temperature is at its bound
_AT_BOUND = 1e-6


@register(
    source="Guo, Tao, Luo, Dong, Xu, SMART, ICML 2026, arXiv 2506.23492, Table 3",
    keeps_argmax=True,
    parameters="1",
    limits={"sigma": "(0, inf)", "delta": "(0, inf)", "alpha": "[0, 1)"},
)
class ObjectiveTemperature(TemperatureScaling):
    """Temperature scaling with one of the objectives of the SMART paper's Table 3.

    The objectives are those of :mod:`calgrid.calibrators._objectives`. Most are not convex: 100
    temperatures, evenly spaced in ln T, are tried, and golden section refines the best between its
    neighbours. T is searched from 0.05 to 100 in units of the spread of the logits
    (``logit_scale``). ``nll`` is fitted as in ``ts``.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (the objective at each temperature tried),
    ``at_lower_bound`` and ``at_upper_bound`` (beta has its minimum or maximum).

    Parameters
    ----------
    objective : objective that the temperature minimises.
    sigma : width of a soft bin of ``softece``, ``charbonnier`` and ``pointwise``, in units of
        confidence.
    delta : half-width of the smooth part of the penalty of ``charbonnier`` and ``pointwise``.
    alpha : label smoothing of ``ls``.
    """

    objective: Literal["nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"] = "brier"
    sigma: float = 0.05
    delta: float = 1e-3
    alpha: float = 0.05

    def _search(self, logits: Array, labels: Labels) -> TemperatureFit:
        if self.objective == "nll":
            return super()._search(logits, labels)
        objective = build_objective(
            self.objective, sigma=self.sigma, delta=self.delta, alpha=self.alpha
        )
        return search_temperature(logits, labels, objective, self._scale)


def search_temperature(
    logits: Array, labels: Labels, objective: Objective, identity: float = 1.0
) -> TemperatureFit:
    """Minimise an objective over T in [0.05, 100], or up to ``1 / identity`` if this lies beyond
    and the loss there is lower.

    ``identity`` is the beta of the logits before they were divided by their unit. If no loss is
    lower than with it, T is its inverse. Losses are those of :func:`search_within`. Logits ``(N,
    K)`` have row maximum 0; labels are ``(N,)``.
    """
    fit = search_within(logits, labels, objective, identity, BETA_BOUNDS)
    wider = beta_bounds(identity)
    if wider == BETA_BOUNDS:
        return fit
    further = search_within(logits, labels, objective, identity, wider)
    return further if np.min(further.loss) < np.min(fit.loss) - INTERPOLATED else fit


def search_within(
    logits: Array,
    labels: Labels,
    objective: Objective,
    identity: float,
    bounds: tuple[float, float],
) -> TemperatureFit:
    """Return the best of 100 log-spaced T between bounds of beta, refined between its neighbours.

    Losses are those of the scan by ascending T, then of the section.
    """
    lower, upper = bounds
    evidence = TopLabelInputs.gather(logits, labels, lower, objective.reach * upper)
    losses: dict[float, float] = {}

    def loss(log_temperature: float) -> float:
        if log_temperature not in losses:
            beta = np.full(len(labels), np.exp(-log_temperature))
            losses[log_temperature], _ = objective(evidence, beta)
        return losses[log_temperature]

    grid = np.linspace(-np.log(upper), -np.log(lower), N_SCANNED)
    scanned = [loss(float(point)) for point in grid]
    best = int(np.argmin(scanned))
    left = float(grid[max(best - 1, 0)])
    right = float(grid[min(best + 1, N_SCANNED - 1)])
    for _ in range(N_STEPS):
        width = _SHRINK * (right - left)
        if loss(right - width) <= loss(left + width):
            right = left + width
        else:
            left = right - width
    lowest = min(losses, key=losses.__getitem__)
    found, unchanged = lowest, -float(np.log(np.clip(identity, lower, upper)))
    # also for a flat loss, such as that of equal logits
    if not losses[found] < loss(unchanged) - TOLERANCE:
        lowest = unchanged
    return TemperatureFit(
        beta=float(np.clip(np.exp(-lowest), lower, upper)),
        loss=list(losses.values()),
        at_lower_bound=bool(grid[-1] - lowest < _AT_BOUND),
        at_upper_bound=bool(lowest - grid[0] < _AT_BOUND),
        kept=losses[lowest] < losses[found] - TOLERANCE,
    )
