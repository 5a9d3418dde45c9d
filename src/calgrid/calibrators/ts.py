"""Temperature scaling: one temperature for all samples, of lowest NLL, another objective, or
top-versus-all loss.
"""

from typing import Literal

import numpy as np

from calgrid.calibrators._objectives import (
    Objective,
    TopLabelInputs,
    build_objective,
    log_rest,
    margin_and_excess,
)
from calgrid.calibrators._probabilities import Array, Head, History, Labels, sigmoid, softplus
from calgrid.calibrators._temperature import (
    BETA_BOUNDS,
    BetaLoss,
    TemperatureFit,
    beta_bounds,
    fit_temperature,
    lowest_beta,
)
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register
from calgrid.metrics.moments import row_blocks

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
    id="ts",
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, Eq. "
    "9",
    keeps_argmax=True,
    parameters="1",
)
class TemperatureScaling(SoftmaxCalibrator):
    """Temperature scaling, ``softmax(z / T)`` with the T of lowest validation NLL.

    The authors' code runs L-BFGS without line search on T for at most 200 steps and can stop short;
    the loss is convex in ``beta = 1 / T``, where Newton iterations reach the minimum to 1e-10.
    ``ts_objective`` minimises another objective.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (at each temperature tried),
    ``at_lower_bound`` and ``at_upper_bound`` (beta has its minimum or maximum), ``n_infinite_loss``
    (omitted samples, whose label has the logit -inf).
    """

    scale_free = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        fit = self._search(logits, labels)
        self.beta = fit.beta
        return fit.history()

    def _search(self, logits: Array, labels: Labels) -> TemperatureFit:
        """Return the temperature of lowest loss."""
        return fit_temperature(logits, labels, self._scale)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits * self.beta


@register(
    id="ts_objective",
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


def top_versus_all(logits: Array, labels: Labels) -> tuple[BetaLoss, int]:
    """Return the binary cross-entropy of confidence against correctness as a function of beta, and
    its samples.

    It is not necessarily convex. Samples with one possible class have confidence 1 at every
    temperature and are left out.
    """
    varies = (logits > -np.inf).sum(axis=1) > 1
    used = logits if varies.all() else logits[varies]
    margins, excesses = margin_and_excess(used)
    correct = used.argmax(axis=1) == labels[varies]

    def objective(beta: float, rows: slice) -> tuple[float, float]:
        margin, excess, is_correct = margins[rows], excesses[rows], correct[rows]
        rest, d_rest = np.empty((2, len(margin)))
        for block in row_blocks(*excess.shape):
            rest[block], d_rest[block] = log_rest(excess[block], np.array([beta]))
        score, n_samples = beta * margin - rest, max(1, len(margin))
        loss = softplus(np.where(is_correct, -score, score)).sum()
        slope = ((sigmoid(score) - is_correct) * (margin - d_rest)).sum()
        return float(loss) / n_samples, float(slope) / n_samples

    return objective, len(correct)


@register(
    id="tva_ts",
    source="Le Coz, Herbin, Adjed, Confidence Calibration of Classifiers with Many Classes, "
    "NeurIPS 2024",
    keeps_argmax=True,
    parameters="1",
)
class TopVersusAllTemperature(TemperatureScaling):
    """Temperature scaling by the top-versus-all loss.

    ``softmax(z / T)`` with the T of lowest binary cross-entropy of the confidence against the
    correctness of the prediction. The authors' code (allglc/tva-calibration) runs Adam on T, from
    1.5, for 200 epochs with step 1e-3; here a scan and a root search find the minimum over T from
    0.05 to 100 in units of the spread of the logits.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (nats), ``at_lower_bound``,
    ``at_upper_bound``.
    """

    def _search(self, logits: Array, labels: Labels) -> TemperatureFit:
        return lowest_beta(*top_versus_all(logits, labels), self._scale)
