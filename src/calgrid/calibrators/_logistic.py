"""Binary logistic regression with a quadratic penalty, by Newton's method."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve

from calgrid.calibrators._probabilities import Array, History, sigmoid

#: expected decrease of the loss at which a fit ends; maximum number of steps, and of halvings of
#: each
TOLERANCE, MAX_STEPS, HALVINGS = 1e-15, 50, 30
#: added to the diagonal of the Hessian, as a share of its largest entry: labels may be separable
JITTER = 1e-12
#: why a fit has not converged
STEPS_TAKEN = f"Newton's method took {MAX_STEPS} steps"
#: labels are separable if a step that lowers the loss by less than the first still changes a score
#: by more than the second
NO_GAIN, LONG_STEP = 1e-9, 0.1
#: times the number of samples, penalty on the squared distance from the identity if labels are
#: separable: if all are 1, their probability is then about 1 - 1 / N
RIDGE = 0.1


class LogisticFit(NamedTuple):
    """Coefficients ``(D,)``, mean NLL with penalty, effective number of parameters, whether the
    labels are separable, so that the loss has no minimum, and whether the fit converged otherwise.
    """

    coefficients: Array
    loss: float
    effective: float
    separable: bool
    converged: bool


def fit_logistic(
    design: Array, target: Array, penalty: Array, start: Array, centre: Array | float = 0.0
) -> LogisticFit:
    """Minimise ``mean NLL + (c - m)' P (c - m)`` of ``sigmoid(X c)`` over c.

    Parameters
    ----------
    design : X ``(N, D)``. target : ``(N,)`` in [0, 1].
    penalty : P ``(D, D)``, symmetric, positive semi-definite.
    start : initial c ``(D,)``.
    centre : m ``(D,)``.
    """
    coefficients, n_samples = start, len(target)
    loss, probability = _loss(design, target, penalty, start, centre)
    separable = converged = False
    for _ in range(MAX_STEPS):
        gradient = design.T @ (probability - target) / n_samples
        gradient += 2.0 * penalty @ (coefficients - centre)
        step = solve(_hessian(design, probability, penalty)[1], -gradient, assume_a="pos")
        gain = -gradient @ step
        separable = gain <= NO_GAIN and bool(np.abs(design @ step).max() > LONG_STEP)
        converged = gain <= TOLERANCE
        if separable or converged:
            break
        for _ in range(HALVINGS):
            trial = coefficients + step
            trial_loss, trial_probability = _loss(design, target, penalty, trial, centre)
            if trial_loss <= loss:
                break
            step *= 0.5
        coefficients, loss, probability = trial, trial_loss, trial_probability
    of_data, hessian = _hessian(design, probability, penalty)
    effective = float(np.trace(solve(hessian, of_data, assume_a="pos")))
    return LogisticFit(coefficients, loss, effective, separable, converged)


def fit_held(fit: Callable[[float], LogisticFit], ridge: float) -> LogisticFit:
    """Return ``fit(0)`` or, if the labels are separable, ``fit(ridge)`` with a penalty."""
    found = fit(0.0)
    if not found.separable:
        return found
    held = fit(ridge)
    return held._replace(separable=True, converged=held.converged or held.separable)


def note(fit: LogisticFit) -> History:
    """Return the entries of a ``fit_history`` about a fit of correctness to the confidence."""
    separated = (
        "All predictions are right, or all are wrong, or the confidence separates them: only a "
        "penalty holds the map near the identity."
    )
    return {
        "warnings": [separated] if fit.separable else [],
        "unconverged": "" if fit.converged else STEPS_TAKEN,
    }


def notes(fits: Sequence[Any], n_classes: int) -> History:
    """Return the entries of a ``fit_history`` about fits of single classes, which have the
    attributes ``separable`` and ``converged``.
    """
    separable = sum(fit.separable for fit in fits)
    unconverged = sum(not fit.converged for fit in fits)
    separated = (
        f"The probability of {separable} of {n_classes} classes separates their samples from the "
        "others: only a penalty holds their maps near the identity."
    )
    unfinished = f"in {unconverged} of {n_classes} classes {STEPS_TAKEN}"
    return {
        "warnings": [separated] if separable else [],
        "unconverged": unfinished if unconverged else "",
    }


def _loss(
    design: Array, target: Array, penalty: Array, coefficients: Array, centre: Array | float
) -> tuple[float, Array]:
    scores = design @ coefficients
    nll = np.mean(np.logaddexp(0.0, scores) - target * scores)
    distance = coefficients - centre
    return float(nll + distance @ penalty @ distance), sigmoid(scores)


def _hessian(design: Array, probability: Array, penalty: Array) -> tuple[Array, Array]:
    """Return the Hessian of the mean NLL, and the Hessian of the loss with a slightly larger
    diagonal.
    """
    weight = probability * (1.0 - probability) / len(design)
    of_data = (design * weight[:, None]).T @ design
    hessian = of_data + 2.0 * penalty
    diagonal = np.einsum("dd->d", hessian)
    diagonal += JITTER * diagonal.max() + np.finfo(np.float64).tiny
    return of_data, hessian
