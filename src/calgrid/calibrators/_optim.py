"""Adam for objectives with an analytic gradient: full-batch with early stopping, or on shuffled batches."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: parameters (P,) -> loss, d loss / d parameters (P,)
Objective = Callable[[Array], tuple[float, Array]]
#: called with epoch and parameters (P,) before each step; must not change the parameters
Watch = Callable[[int, Array], None]


class Adam:
    """Adam (Kingma & Ba, ICLR 2015, Algorithm 1) on one parameter vector.

    Parameters
    ----------
    size : P, the length of the vector.
    learning_rate : step size.
    beta1, beta2 : decay of the running mean and of the running square of the gradient.
    epsilon : added to the root of the corrected square.
    """

    def __init__(
        self, size: int, learning_rate: float, beta1: float = 0.9, beta2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        self.learning_rate, self.beta1, self.beta2, self.epsilon = learning_rate, beta1, beta2, epsilon
        self._mean, self._square, self._steps = np.zeros(size), np.zeros(size), 0

    def step(self, parameters: Array, gradient: Array) -> None:
        """Update ``parameters`` ``(P,)`` in place with ``gradient`` ``(P,)``."""
        self._steps += 1
        self._mean += (1.0 - self.beta1) * (gradient - self._mean)
        self._square += (1.0 - self.beta2) * (gradient * gradient - self._square)
        scale = self.learning_rate / (1.0 - self.beta1**self._steps)
        root = np.sqrt(self._square / (1.0 - self.beta2**self._steps))
        parameters -= scale * self._mean / (root + self.epsilon)


@dataclass(frozen=True)
class Minimum:
    """Result of :func:`minimise`.

    Attributes
    ----------
    parameters : copy of the parameters ``(P,)`` with the lowest loss.
    losses : loss before each step, one per epoch.
    best_epoch : 0-based epoch of the lowest loss.
    """

    parameters: Array
    losses: list[float] = field(repr=False)
    best_epoch: int

    def history(self) -> dict[str, list[float] | float]:
        """Return the losses, the number of epochs, and the best epoch with its loss, for a ``fit_history``."""
        best = self.best_epoch
        return {
            "loss": self.losses,
            "epochs": len(self.losses),
            "best_epoch": best,
            "initial_loss": self.losses[0],
            "best_loss": self.losses[best],
        }


def minimise(
    objective: Objective,
    start: Array,
    *,
    learning_rate: float,
    max_epochs: int,
    patience: int,
    min_delta: float,
    watch: Watch | None = None,
) -> Minimum:
    """Run full-batch Adam from ``start`` and return the parameters of the lowest loss.

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
    return Minimum(best, losses, best_epoch)


def minimise_in_batches(
    objective_of: Callable[[NDArray[np.intp]], Objective],
    start: Array,
    n_samples: int,
    *,
    generator: np.random.Generator,
    learning_rate: float,
    batch_size: int,
    steps: int,
    epsilon: float,
) -> tuple[Array, list[float]]:
    """Run Adam on shuffled batches; return the last parameters ``(P,)`` and the mean loss of each epoch.

    Parameters
    ----------
    objective_of : maps the indices of a batch to its objective.
    generator : random generator of the order of samples.
    batch_size : samples per batch; the last batch of an epoch may have fewer.
    epsilon : epsilon of Adam.
    """
    parameters, adam = start.copy(), Adam(start.size, learning_rate, epsilon=epsilon)
    losses, done = [], 0
    while done < steps:
        order = generator.permutation(n_samples)
        batches = [order[begin : begin + batch_size] for begin in range(0, n_samples, batch_size)][: steps - done]
        total = 0.0
        for batch in batches:
            loss, gradient = objective_of(batch)(parameters)
            total += float(loss)
            adam.step(parameters, gradient)
        losses.append(total / len(batches))
        done += len(batches)
    return parameters, losses
