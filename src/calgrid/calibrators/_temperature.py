"""Single temperature of lowest negative log-likelihood, or of another loss, which may have several
local minima.
"""

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.optimize import brentq

from calgrid.calibrators._probabilities import (
    Array,
    History,
    Labels,
    logit_scale,
    rescaled,
    usable_rows,
)
from calgrid.metrics.moments import moments

#: beta, rows -> mean loss over these rows and its derivative in beta
Objective = Callable[[float, slice], tuple[float, float]]
#: bounds of the inverse temperature: T from 0.05 to 100, in units of the logits' spread where a
#: calibrator is scale-free, where T is near 2 for most networks
BETA_BOUNDS = (1e-2, 20.0)
TOLERANCE = 1e-10
#: a Newton step that is relatively smaller is the last: its error is about its square
LAST_STEP = 1e-6
#: Newton needs about 7 steps; bisection alone reaches the tolerance from these bounds in 37
MAX_ITERATIONS = 60
#: relative distance within which a temperature of a sample is at its bound
AT_BOUND = 1e-3
#: number of intervals of the scan, equal in ln beta; beta = 1 is evaluated, too
N_SCANNED = 50
#: number of samples in a first search, whose result is refined on all samples
N_ROWS = 1000
#: initial width of the bracket around the result of the scan, as a factor
FINE_STEP = 1.01
#: said of a fit that finds nothing better than the logits as they are
KEPT = "No map that was tried has a lower loss than the logits as they are, which stay."
#: losses and derivatives of the scan closer than this are equal
EQUAL = 1e-12


@dataclass(frozen=True)
class TemperatureFit:
    """Single temperature of lowest loss.

    Attributes
    ----------
    beta : inverse temperature 1/T.
    loss : mean loss at each evaluated inverse temperature, or at beta only.
    at_lower_bound : T has its maximum: predictions are worse than chance, or logits very large.
    at_upper_bound : T has its minimum: the labels are separable, or logits very small.
    n_infinite_loss : number of omitted samples, whose label has the logit -inf: no temperature
        changes their NLL; None for losses without such samples.
    kept : the search found nothing as good as the logits as they are.
    """

    beta: float
    loss: list[float] | float = field(repr=False)
    at_lower_bound: bool
    at_upper_bound: bool
    n_infinite_loss: int | None = None
    kept: bool = False

    @property
    def temperature(self) -> float:
        """T = 1 / beta."""
        return 1.0 / self.beta

    @property
    def warnings(self) -> list[str]:
        """Warnings for a ``fit_history`` if the temperature is at a bound, or the search failed."""
        if self.kept:
            return [KEPT]
        return [
            f"The temperature is the {size}est that is allowed: the loss still falls towards "
            f"{size}er ones."
            for size, reached in (("larg", self.at_lower_bound), ("small", self.at_upper_bound))
            if reached
        ]

    def history(self) -> History:
        """Return the entries of ``fit_history`` for one temperature."""
        history: History = {
            "temperature": self.temperature,
            "beta": self.beta,
            "loss": self.loss,
            "at_lower_bound": self.at_lower_bound,
            "at_upper_bound": self.at_upper_bound,
            "warnings": self.warnings,
        }
        if self.n_infinite_loss is not None:
            history["n_infinite_loss"] = self.n_infinite_loss
        return history


def temperature_range(
    temperature: Array,
    bounds: tuple[float, float] = (0.0, np.inf),
    warnings: Sequence[str] = (),
) -> History:
    """Return entries of ``fit_history`` for several temperatures: further ``warnings``, and one on
    temperatures of samples ``(N,)`` at a bound.
    """
    at_lower = temperature <= bounds[0] * (1.0 + AT_BOUND)
    at_bound = at_lower | (temperature >= bounds[1] * (1.0 - AT_BOUND))
    warning = (
        f"The temperature of {at_bound.mean():.2%} of the validation samples is the smallest or "
        "largest allowed."
    )
    return {
        "temperature_min": float(temperature.min()),
        "temperature_mean": float(temperature.mean()),
        "temperature_max": float(temperature.max()),
        "warnings": [*warnings, *([warning] if at_bound.any() else [])],
    }


def beta_bounds(identity: float) -> tuple[float, float]:
    """Return [0.01, 20], extended to the inverse temperature of the logits as they are."""
    return min(BETA_BOUNDS[0], identity), max(BETA_BOUNDS[1], identity)


def fit_temperature(logits: Array, labels: Labels, identity: float = 1.0) -> TemperatureFit:
    """Minimise the NLL of ``softmax(beta z)`` over beta in [0.01, 20], extended to ``identity``,
    which is convex, by bracketed Newton iterations.

    The search starts at beta = 1, on every ``N // 1000``-th sample, and continues on all. A step
    out of the bracket is replaced by geometric bisection. If the loss is flat at 1 (all logits
    equal, or all labels certain), the search starts at ``identity``, and stays there if the loss is
    flat, too.

    Parameters
    ----------
    logits : ``(N, K)`` float64 with row maximum 0; -inf allowed.
    labels : ``(N,)``.
    identity : the beta of the logits before they were divided by their unit.

    Raises
    ------
    DataError : all labels have the logit -inf.
    """
    used, targets, n_infinite = usable_rows(logits, labels)
    near, stride = None, len(used) // N_ROWS
    if stride > 1:
        few = _newton(used[::stride], targets[::stride], identity)
        near = None if few.at_lower_bound or few.at_upper_bound else few.beta
    fit = _newton(used, targets, identity, near)
    lower, upper = beta_bounds(identity)
    if fit.beta <= lower * (1 + AT_BOUND) or fit.beta >= upper * (1 - AT_BOUND):
        fit = _newton(used, targets, identity)
    if not BETA_BOUNDS[0] <= identity <= BETA_BOUNDS[1]:
        # beyond the bounds the loss may be flat over many powers of ten, and fall again
        further = _newton(used, targets, identity, identity)
        fit = min(fit, further, key=lambda each: np.min(each.loss))
    return replace(fit, n_infinite_loss=n_infinite)


def fit_rescaled(
    logits: Array, labels: Labels, identity: float = 1.0
) -> tuple[TemperatureFit, float]:
    """Return the fit with the bounds of beta in units of the logits' spread, extended to
    ``identity``, and their scale.

    ``beta`` is that of the given logits. Parameters and errors are those of
    :func:`fit_temperature`.
    """
    scale = logit_scale(logits)
    fit = fit_temperature(rescaled(logits, scale), labels, scale * identity)
    return replace(fit, beta=fit.beta / scale), scale


def decade(logits: Array) -> float:
    """Return the power of ten that multiplies grids of temperatures: 1 if the scale of the logits
    is from 0.1 to 10, as in usual networks, else the nearest power to the scale.
    """
    scale = logit_scale(logits)
    return 1.0 if 0.1 <= scale <= 10.0 else float(10.0 ** np.round(np.log10(scale)))


def _newton(
    logits: Array, labels: Labels, identity: float, near: float | None = None
) -> TemperatureFit:
    """Minimise the NLL from beta = 1, or from one near a minimum that is known to be within the
    bounds; all labels have finite logits.
    """
    true_mean = float(logits[np.arange(len(labels)), labels].mean())
    losses: list[float] = []

    def derivatives(beta: float) -> tuple[float, float]:
        """Return the means of E_p[z] - z_y and of the variance of z under p; store the loss."""
        log_total, first, second = moments(logits, beta)
        losses.append(float(log_total.mean() - beta * true_mean))
        return float(first.mean() - true_mean), float(second.mean())

    beta = 1.0 if near is None else near
    slope, curvature = derivatives(beta)
    if near is None and beta * abs(slope) <= TOLERANCE and identity != beta:
        beta = identity
        slope, curvature = derivatives(beta)
    side = int(slope < 0.0)
    bound = beta_bounds(identity)[side]
    is_flat = beta * abs(slope) <= TOLERANCE
    if near is None and not is_flat and derivatives(bound)[0] * (1 - 2 * side) > 0.0:
        return TemperatureFit(bound, losses, side == 0, side == 1)
    lower, upper = sorted((beta, bound))
    for _ in range(MAX_ITERATIONS):
        if beta * abs(slope) <= TOLERANCE:  # the derivative in ln beta has no unit
            break
        lower, upper = (lower, beta) if slope > 0.0 else (beta, upper)
        step = beta - slope / curvature if curvature > 0.0 else np.inf
        following = step if lower < step < upper else float(np.sqrt(lower * upper))
        moved = abs(following - beta)
        converged = moved < (LAST_STEP if following == step else TOLERANCE) * beta
        beta = following
        if converged:
            break
        slope, curvature = derivatives(beta)
    return TemperatureFit(beta, losses, False, False)


def lowest_beta(objective: Objective, n_samples: int, identity: float = 1.0) -> TemperatureFit:
    """Minimise over beta in [0.01, 20], extended to ``identity``: scan and root of the derivative
    on some samples, then the root on all samples.

    The first search uses every ``ceil(N / 1000)``-th sample. From there a bracket is widened until
    the derivative over all samples changes its sign; Brent's method finds the root to 1e-10. If the
    loss there is not lower than at ``identity``, beta is ``identity``.

    Parameters
    ----------
    objective : see :data:`Objective`.
    n_samples : N.
    identity : the beta of the logits before they were divided by their unit.
    """
    bounds = beta_bounds(identity)
    step = (bounds[1] / bounds[0]) ** (1.0 / N_SCANNED)
    stride = max(1, -(-n_samples // N_ROWS))
    grid = np.sort(np.append(np.geomspace(*bounds, N_SCANNED + 1), identity))
    partial = functools.cache(lambda beta: objective(beta, slice(None, None, stride)))
    losses = np.array([partial(beta)[0] for beta in grid.tolist()])
    # among equal losses the beta closest to that of the logits as they are
    equal = grid[losses <= losses.min() + EQUAL]
    beta = _root(partial, float(equal[np.abs(np.log(equal / identity)).argmin()]), step, bounds)
    if stride > 1:
        partial = functools.cache(lambda beta: objective(beta, slice(None)))
        beta = _root(partial, beta, FINE_STEP, bounds)
    found, unchanged = partial(beta)[0], partial(identity)[0]
    if unchanged <= found:
        kept = unchanged < found - EQUAL
        return TemperatureFit(identity, unchanged, False, False, kept=kept)
    return TemperatureFit(beta, found, beta == bounds[0], beta == bounds[1])


def _root(
    objective: Callable[[float], tuple[float, float]],
    start: float,
    ratio: float,
    bounds: tuple[float, float],
) -> float:
    """Return the local minimum next to ``start``: the zero of the derivative, or the bound."""
    slope = objective(start)[1]
    if abs(slope) <= EQUAL:
        return start
    begin, bound = start, bounds[int(slope < 0.0)]
    while begin != bound:
        end = max(begin / ratio, bound) if slope > 0.0 else min(begin * ratio, bound)
        if objective(end)[1] * slope <= 0.0:
            return float(
                brentq(
                    lambda beta: objective(beta)[1], *sorted((begin, end)), xtol=1e-300, rtol=1e-10
                )
            )
        begin, ratio = end, ratio**2
    return bound
