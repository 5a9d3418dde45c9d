"""Binary logistic regression with a quadratic penalty, by Newton's method."""

from typing import NamedTuple

import numpy as np
from scipy.linalg import solve

from calgrid.calibrators._network import sigmoid
from calgrid.calibrators._probabilities import Array

#: expected decrease of the loss at which a fit ends; maximum number of steps, and of halvings of
#: each
TOLERANCE, MAX_STEPS, HALVINGS = 1e-15, 50, 30
#: added to the diagonal of the Hessian, as a share of its largest entry: labels may be separable
JITTER = 1e-12


class LogisticFit(NamedTuple):
    """Coefficients ``(D,)``, mean NLL with penalty, and effective number of parameters."""

    coefficients: Array
    loss: float
    effective: float


def fit_logistic(design: Array, target: Array, penalty: Array, start: Array) -> LogisticFit:
    """Minimise ``mean NLL + c' P c`` of ``sigmoid(X c)`` over c.

    Parameters
    ----------
    design : X ``(N, D)``. target : ``(N,)`` in [0, 1].
    penalty : P ``(D, D)``, symmetric, positive semi-definite.
    start : initial c ``(D,)``.
    """
    coefficients, n_samples = start, len(target)
    loss, probability = _loss(design, target, penalty, start)
    for _ in range(MAX_STEPS):
        gradient = design.T @ (probability - target) / n_samples + 2.0 * penalty @ coefficients
        step = solve(_hessian(design, probability, penalty)[1], -gradient, assume_a="pos")
        if -gradient @ step <= TOLERANCE:
            break
        for _ in range(HALVINGS):
            trial = coefficients + step
            trial_loss, trial_probability = _loss(design, target, penalty, trial)
            if trial_loss <= loss:
                break
            step *= 0.5
        coefficients, loss, probability = trial, trial_loss, trial_probability
    of_data, hessian = _hessian(design, probability, penalty)
    effective = float(np.trace(solve(hessian, of_data, assume_a="pos")))
    return LogisticFit(coefficients, loss, effective)


def _loss(design: Array, target: Array, penalty: Array, coefficients: Array) -> tuple[float, Array]:
    scores = design @ coefficients
    nll = np.mean(np.logaddexp(0.0, scores) - target * scores)
    return float(nll + coefficients @ penalty @ coefficients), sigmoid(scores)


def _hessian(design: Array, probability: Array, penalty: Array) -> tuple[Array, Array]:
    """Return the Hessian of the mean NLL, and that of the loss with a slightly larger diagonal."""
    weight = probability * (1.0 - probability) / len(design)
    of_data = (design * weight[:, None]).T @ design
    hessian = of_data + 2.0 * penalty
    diagonal = np.einsum("dd->d", hessian)
    diagonal += JITTER * diagonal.max() + np.finfo(np.float64).tiny
    return of_data, hessian
