"""The one temperature of lowest negative log-likelihood."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

Array = NDArray[np.float64]
#: bounds of the inverse temperature: T from 0.05 to 100
BETA_BOUNDS = (1e-2, 20.0)
TOLERANCE = 1e-10
#: Newton needs about 7 steps; bisection alone reaches the tolerance from these bounds in 37
MAX_ITERATIONS = 60


@dataclass(frozen=True)
class TemperatureFit:
    """Result of :func:`fit_temperature`.

    Attributes
    ----------
    beta : inverse temperature 1/T.
    losses : NLL in nats at each inverse temperature that was tried.
    at_lower_bound : the predictions are worse than chance, T is the largest allowed.
    at_upper_bound : the labels are separable, T is the smallest allowed.
    n_infinite_loss : samples left out because their label's logit is -inf: no temperature changes their loss.
    """

    beta: float
    losses: list[float] = field(repr=False)
    at_lower_bound: bool
    at_upper_bound: bool
    n_infinite_loss: int

    @property
    def temperature(self) -> float:
        """T = 1 / beta."""
        return 1.0 / self.beta


class _Likelihood:
    """Mean NLL of ``softmax(beta z)`` and its first two derivatives in beta; convex in beta (not in T)."""

    def __init__(self, logits: Array, labels: NDArray[np.int64]) -> None:
        true = logits[np.arange(len(labels)), labels]
        usable = true > -np.inf
        if not usable.any():
            raise DataError("every label's logit is -inf: the labels do not belong to these logits.")
        self.n_left_out = int((~usable).sum())
        self.true_mean = float(true[usable].mean())
        kept = logits if self.n_left_out == 0 else logits[usable]
        # -inf times probability 0 would be NaN; any number with exp(beta z) = 0 gives the same moments
        self.logits = np.where(np.isneginf(kept), -1e100, kept) if np.isneginf(kept).any() else kept
        self.losses: list[float] = []

    def derivatives(self, beta: float) -> tuple[float, float]:
        """Return the mean of E_p[z] - z_y and the mean variance of z under p; keep the loss."""
        weights = np.exp(beta * self.logits)
        total = weights.sum(axis=1)
        weights *= self.logits
        first = weights.sum(axis=1) / total
        second = np.einsum("nk,nk->n", weights, self.logits) / total
        self.losses.append(float(np.log(total).mean() - beta * self.true_mean))
        return float(first.mean() - self.true_mean), float((second - first**2).mean())


def fit_temperature(logits: Array, labels: NDArray[np.int64]) -> TemperatureFit:
    """Minimise the NLL of ``softmax(beta z)`` over beta in [0.01, 20] by bracketed Newton iterations.

    Starts from beta = 1 and replaces a step that leaves the bracket by geometric bisection. Where the loss is flat
    at 1 (all logits equal, or all labels certain) beta stays 1.

    Parameters
    ----------
    logits : ``(N, K)`` float64 with row maximum 0; -inf allowed.
    labels : ``(N,)``.

    Raises
    ------
    DataError : every label's logit is -inf.
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
