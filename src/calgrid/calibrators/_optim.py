"""Adam for objectives with an analytic gradient, and full-batch with early stopping."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: parameters (P,) -> loss, d loss / d parameters (P,)
Objective = Callable[[Array], tuple[float, Array]]
#: called with epoch and parameters (P,) before each step; must not change the parameters
Watch = Callable[[int, Array], None]
#: decay of the running mean and of the running square of the gradient
BETA1, BETA2 = 0.9, 0.999


class Adam:
    """Adam (Kingma & Ba, ICLR 2015, Algorithm 1) on one parameter vector of length ``size``.

    ``epsilon`` is added to the root of the corrected square.
    """

    def __init__(self, size: int, learning_rate: float, epsilon: float = 1e-8) -> None:
        self.learning_rate, self.epsilon = learning_rate, epsilon
        self._mean, self._square, self._steps = np.zeros(size), np.zeros(size), 0

    def step(self, parameters: Array, gradient: Array) -> None:
        """Update ``parameters`` ``(P,)`` in place with ``gradient`` ``(P,)``."""
        self._steps += 1
        self._mean += (1.0 - BETA1) * (gradient - self._mean)
        self._square += (1.0 - BETA2) * (gradient * gradient - self._square)
        scale = self.learning_rate / (1.0 - BETA1**self._steps)
        root = np.sqrt(self._square / (1.0 - BETA2**self._steps))
        parameters -= scale * self._mean / (root + self.epsilon)


def minimise(
    objective: Objective,
    start: Array,
    *,
    learning_rate: float,
    max_epochs: int,
    patience: int,
    min_delta: float,
    watch: Watch | None = None,
) -> tuple[Array, dict[str, Any]]:
    """Run full-batch Adam from ``start``; return a copy of the parameters of the lowest loss, and the ``fit_history``.

    Parameters
    ----------
    objective : maps parameters ``(P,)`` to loss and gradient ``(P,)``.
    max_epochs : maximum number of evaluations of the objective, at least 1.
    patience : stop after this number of successive epochs without a decrease of more than ``min_delta``.
    watch : called in each epoch, see :data:`Watch`.
    """
    parameters, adam = start.copy(), Adam(start.size, learning_rate)
    best, best_epoch, losses = start.copy(), 0, []
    reference, waited = np.inf, 0
    for epoch in range(max_epochs):
        loss, gradient = objective(parameters)
        losses.append(float(loss))
        if watch is not None:
            watch(epoch, parameters)
        if loss < losses[best_epoch]:
            best, best_epoch = parameters.copy(), epoch
        waited = 0 if loss < reference - min_delta else waited + 1
        reference = loss if waited == 0 else reference
        if waited >= patience:
            break
        adam.step(parameters, gradient)
    return best, {
        "loss": losses,
        "epochs": len(losses),
        "best_epoch": best_epoch,
        "initial_loss": losses[0],
        "best_loss": losses[best_epoch],
    }
