"""L-BFGS for several independent problems of equal size.

Places that share data are evaluated by one matrix product; each has its own steps and history.
"""

from collections.abc import Callable

import numpy as np

from calgrid.calibrators._probabilities import Array, Places

#: parameters (V, P) of the problems (V,) -> their losses (V,) and gradients (V, P)
Objective = Callable[[Array, Places], tuple[Array, Array]]

#: number of stored steps and gradient changes
MEMORY = 10
#: least decrease of a step as a fraction of the predicted one; maximum number of halvings of a step
SUFFICIENT, HALVINGS = 1e-4, 20
#: a problem is solved if its loss decreases by less than this share, or its largest gradient
#: component is below this
LOSS_TOLERANCE, GRADIENT_TOLERANCE = 1e-9, 1e-6


class _History:
    """Stored steps and gradient changes of U problems."""

    def __init__(self, n_problems: int, size: int) -> None:
        self._steps, self._changes = np.zeros((2, MEMORY, n_problems, size))
        #: 1 / (step . change), 0 for an empty pair or one without positive curvature
        self._weights = np.zeros((MEMORY, n_problems))
        self._scale = np.zeros(n_problems)
        self._count = 0

    def add(self, which: Places, step: Array, change: Array) -> None:
        """Store a step ``(V, P)`` and the change of the gradient along it."""
        slot = self._count % MEMORY
        self._count += 1
        curvature, square = np.vecdot(step, change), np.vecdot(change, change)
        usable = curvature > np.finfo(np.float64).eps * square
        weight = np.divide(1.0, curvature, out=np.zeros_like(curvature), where=usable)
        self._weights[slot] = 0.0
        self._weights[slot, which] = weight
        self._steps[slot, which] = step
        self._changes[slot, which] = change
        self._scale[which[usable]] = curvature[usable] / square[usable]

    def direction(self, which: Places, gradient: Array) -> Array:
        """Return a descent direction ``(V, P)``."""
        recent = [(self._count - 1 - back) % MEMORY for back in range(min(self._count, MEMORY))]
        result, shares = -gradient, {}
        for slot in recent:
            weight = self._weights[slot, which]
            shares[slot] = weight * np.vecdot(self._steps[slot, which], result)
            result -= shares[slot][:, None] * self._changes[slot, which]
        # a step of length at most 1 before the first usable pair
        first = 1.0 / np.maximum(1.0, np.linalg.norm(gradient, axis=1))
        scale = self._scale[which]
        result *= np.where(scale > 0.0, scale, first)[:, None]
        for slot in reversed(recent):
            weight = self._weights[slot, which]
            correction = shares[slot] - weight * np.vecdot(self._changes[slot, which], result)
            result += correction[:, None] * self._steps[slot, which]
        return result


def minimise_each(
    objective: Objective, start: Array, max_iterations: int
) -> tuple[Array, Array, int]:
    """Minimise U problems from ``start`` ``(U, P)`` by L-BFGS with backtracking.

    Returns the final parameters ``(U, P)`` and losses ``(U,)``, and the number of problems that did
    not converge.
    """
    parameters, which = start.copy(), np.arange(len(start))
    loss, gradient = objective(parameters, which)
    history = _History(*start.shape)
    for _ in range(max_iterations):
        which = which[np.abs(gradient[which]).max(axis=1) > GRADIENT_TOLERANCE]
        if not len(which):
            break
        before, slope_before = loss[which], gradient[which]
        direction = history.direction(which, slope_before)
        step = _backtrack(objective, which, direction, parameters, loss, gradient)
        history.add(which, step[:, None] * direction, gradient[which] - slope_before)
        which = which[before - loss[which] > LOSS_TOLERANCE * np.maximum(1.0, np.abs(before))]
    return parameters, loss, len(which)


def _backtrack(
    objective: Objective,
    which: Places,
    direction: Array,
    parameters: Array,
    loss: Array,
    gradient: Array,
) -> Array:
    """Backtracking line search along ``direction``, in place; return the step sizes ``(V,)``.

    A problem without a decrease keeps its parameters, with step 0.
    """
    slope = np.vecdot(gradient[which], direction)
    step, taken = np.ones(len(which)), np.zeros(len(which))
    trying = np.arange(len(which))
    for _ in range(HALVINGS):
        trial = parameters[which[trying]] + step[trying, None] * direction[trying]
        trial_loss, trial_gradient = objective(trial, which[trying])
        good = trial_loss <= loss[which[trying]] + SUFFICIENT * step[trying] * slope[trying]
        rows, problems = trying[good], which[trying[good]]
        parameters[problems] = trial[good]
        loss[problems] = trial_loss[good]
        gradient[problems] = trial_gradient[good]
        taken[rows] = step[rows]
        trying = trying[~good]
        if not len(trying):
            break
        step[trying] *= 0.5
    return taken
