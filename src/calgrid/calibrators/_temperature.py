"""Single temperature of lowest negative log-likelihood."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import LEAST_EXPONENT, possible_labels, row_blocks

Array = NDArray[np.float64]
#: bounds of the inverse temperature: T from 0.05 to 100, in units of the logits' spread where a calibrator is
#: scale-free, where T is near 2 for most networks
BETA_BOUNDS = (1e-2, 20.0)
TOLERANCE = 1e-10
#: Newton needs about 7 steps; bisection alone reaches the tolerance from these bounds in 37
MAX_ITERATIONS = 60


@dataclass(frozen=True)
class TemperatureFit:
    """Single temperature of lowest loss.

    Attributes
    ----------
    beta : inverse temperature 1/T.
    loss : mean loss at each evaluated inverse temperature, or at beta only.
    at_lower_bound : T has its maximum: predictions are worse than chance, or logits very large.
    at_upper_bound : T has its minimum: the labels are separable, or logits very small.
    n_infinite_loss : number of omitted samples, whose label has the logit -inf: no temperature changes their loss.
    """

    beta: float
    loss: list[float] | float = field(repr=False)
    at_lower_bound: bool
    at_upper_bound: bool
    n_infinite_loss: int = 0

    @property
    def temperature(self) -> float:
        """T = 1 / beta."""
        return 1.0 / self.beta

    @property
    def warnings(self) -> list[str]:
        """Warnings for a ``fit_history`` if the temperature is at a bound."""
        if self.at_lower_bound:
            return ["The temperature is the largest that is allowed: the loss still falls towards larger ones."]
        if self.at_upper_bound:
            return ["The temperature is the smallest that is allowed: the loss still falls towards smaller ones."]
        return []

    def history(self) -> dict[str, Any]:
        """Return the entries of ``fit_history`` for one temperature."""
        bounds = {"at_lower_bound": self.at_lower_bound, "at_upper_bound": self.at_upper_bound}
        found = {"temperature": self.temperature, "beta": self.beta, "loss": self.loss}
        return {**found, **bounds, "warnings": self.warnings}


def moments(logits: Array, beta: float | Array) -> tuple[Array, Array, Array]:
    """Return, for each sample, ``ln sum_k exp(beta z_k)``, and mean and variance of z under ``softmax(beta z)``.

    The mean is the first derivative in beta of the logarithm, the variance the second. One pass over the logits, in
    blocks that fit into the processor's cache.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0; -inf allowed.
    beta : inverse temperature, one for all samples or ``(N,)``.
    """
    n_samples, n_classes = logits.shape
    total, first, second = np.empty((3, n_samples))
    each = np.broadcast_to(np.asarray(beta, dtype=np.float64).reshape(-1, 1), (n_samples, 1))
    floor, ones = LEAST_EXPONENT / each, np.ones(n_classes)
    for block in row_blocks(n_samples, n_classes):
        # smaller terms are lost in the sum; -inf times 0 would be NaN, and denormal numbers are slow
        finite = np.maximum(logits[block], floor[block])
        weights = finite * each[block]
        np.exp(weights, out=weights)
        np.matmul(weights, ones, out=total[block])
        weights *= finite
        np.matmul(weights, ones, out=first[block])
        np.vecdot(weights, finite, out=second[block])
    first /= total
    second /= total
    second -= first**2
    return np.log(total, out=total), first, second


def temperature_range(temperature: Array) -> dict[str, float]:
    """Return the entries of ``fit_history`` for several temperatures."""
    return {f"temperature_{name}": float(getattr(temperature, name)()) for name in ("min", "mean", "max")}


class _Likelihood:
    """Mean NLL of ``softmax(beta z)`` and its first two derivatives in beta; convex in beta (not in T)."""

    def __init__(self, logits: Array, labels: NDArray[np.int64]) -> None:
        usable = possible_labels(logits, labels)
        self.n_left_out = int((~usable).sum())
        self.logits = logits if self.n_left_out == 0 else logits[usable]
        self.true_mean = float(logits[np.arange(len(labels)), labels][usable].mean())
        self.losses: list[float] = []

    def derivatives(self, beta: float) -> tuple[float, float]:
        """Return the means of E_p[z] - z_y and of the variance of z under p; store the loss."""
        log_total, first, second = moments(self.logits, beta)
        self.losses.append(float(log_total.mean() - beta * self.true_mean))
        return float(first.mean() - self.true_mean), float(second.mean())


def fit_temperature(logits: Array, labels: NDArray[np.int64]) -> TemperatureFit:
    """Minimise the NLL of ``softmax(beta z)`` over beta in [0.01, 20] by bracketed Newton iterations.

    Starts from beta = 1; a step that leaves the bracket is replaced by geometric bisection. If the loss is flat at 1
    (all logits equal, or all labels certain), beta stays 1. Raises DataError: all labels have the logit -inf.

    Parameters
    ----------
    logits : ``(N, K)`` float64 with row maximum 0; -inf allowed.
    labels : ``(N,)``.
    """
    likelihood = _Likelihood(logits, labels)
    beta, (slope, curvature) = 1.0, likelihood.derivatives(1.0)
    side = int(slope < 0.0)
    bound = BETA_BOUNDS[side]
    if abs(slope) > TOLERANCE and likelihood.derivatives(bound)[0] * (1 - 2 * side) > 0.0:
        flags = (side == 0, side == 1)
        return TemperatureFit(bound, likelihood.losses, *flags, likelihood.n_left_out)
    lower, upper = sorted((1.0, bound))
    for _ in range(MAX_ITERATIONS):
        if abs(slope) <= TOLERANCE:
            break
        lower, upper = (lower, beta) if slope > 0.0 else (beta, upper)
        step = beta - slope / curvature if curvature > 0.0 else np.inf
        following = step if lower < step < upper else float(np.sqrt(lower * upper))
        converged = abs(following - beta) < TOLERANCE * beta
        beta = following
        if converged:
            break
        slope, curvature = likelihood.derivatives(beta)
    return TemperatureFit(beta, likelihood.losses, False, False, likelihood.n_left_out)
