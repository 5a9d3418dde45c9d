"""A small multilayer perceptron with one output and an analytic gradient, and Adam to fit it.

The networks of post-hoc calibration have 49 to a few hundred weights; importing a deep-learning
library would take longer than fitting them in NumPy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from calgrid.calibrators._probabilities import Array, History, namespace

#: parameters (P,) -> loss, d loss / d parameters (P,)
Objective = Callable[[Array], tuple[float, Array]]
#: decay of the running mean and of the running square of the gradient
BETA1, BETA2 = 0.9, 0.999


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU between them, from ``sizes[0]`` inputs to one output, as functions of
    a flat vector.

    All weights form one vector ``(P,)``, layer after layer, weights before bias. Samples are
    columns, so that each unit is contiguous in memory.

    Attributes
    ----------
    sizes : number of units of each layer, with input and output, for example ``(1, 16, 1)``.
    """

    sizes: tuple[int, ...]

    @property
    def n_parameters(self) -> int:
        """P, the number of weights and biases."""
        return sum((fan_in + 1) * fan_out for fan_in, fan_out in pairwise(self.sizes))

    def initial(self, generator: np.random.Generator) -> Array:
        """Draw a parameter vector ``(P,)``: weights and biases uniform in ±1/sqrt(fan_in), as
        PyTorch's Linear.
        """
        draws = [
            generator.uniform(-1.0, 1.0, (fan_in + 1) * fan_out) / np.sqrt(fan_in)
            for fan_in, fan_out in pairwise(self.sizes)
        ]
        return np.concatenate(draws)

    def glorot(self, generator: np.random.Generator) -> Array:
        """Draw a parameter vector ``(P,)``: weights uniform in ±sqrt(6 / (fan_in + fan_out)),
        biases 0, as Keras.
        """
        parameters = np.zeros(self.n_parameters)
        for weight, _ in self.layers(parameters):
            limit = np.sqrt(6.0 / sum(weight.shape))
            weight[...] = generator.uniform(-1.0, 1.0, weight.shape) * limit
        return parameters

    def layers(self, parameters: Array) -> list[tuple[Array, Array]]:
        """Return weight ``(fan_out, fan_in)`` and bias ``(fan_out, 1)`` of each layer, as views of
        the vector.
        """
        views, begin = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            middle = begin + fan_in * fan_out
            end = middle + fan_out
            weight = parameters[begin:middle].reshape(fan_out, fan_in)
            views.append((weight, parameters[middle:end].reshape(fan_out, 1)))
            begin = end
        return views

    def forward(self, parameters: Array, inputs: Array) -> tuple[Array, list[Array]]:
        """Return the output ``(N,)`` for inputs ``(D, N)``, and each layer's input for
        :meth:`gradient`.
        """
        signal, layer_inputs = inputs, []
        layers = self.layers(parameters)
        for depth, (weight, bias) in enumerate(layers):
            layer_inputs.append(signal)
            signal = weight @ signal
            signal += bias
            if depth < len(layers) - 1:
                signal = namespace(signal).clip(signal, 0.0, None)
        return signal[0], layer_inputs

    def gradient(self, parameters: Array, layer_inputs: list[Array], d_output: Array) -> Array:
        """Return d loss / d parameters ``(P,)`` from d loss / d output ``(N,)`` and the inputs of
        layers.
        """
        result = np.empty_like(parameters)
        slots = self.layers(result)
        delta = d_output[None, :]
        for depth in reversed(range(len(slots))):
            weight, bias = slots[depth]
            weight[...] = delta @ layer_inputs[depth].T
            bias[...] = delta.sum(axis=1, keepdims=True)
            if depth:
                delta = self.layers(parameters)[depth][0].T @ delta
                delta *= layer_inputs[depth] > 0.0
        return result


class Adam:
    """Adam (Kingma & Ba, ICLR 2015, Algorithm 1) on one parameter vector of length ``size``.

    ``epsilon`` is added to the root of the corrected square.
    """

    def __init__(self, size: int, learning_rate: float, epsilon: float = 1e-8) -> None:
        self.learning_rate = learning_rate
        self.epsilon = epsilon
        self._mean = np.zeros(size)
        self._square = np.zeros(size)
        self._steps = 0

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
    watch: Callable[[int, Array], None] = lambda epoch, parameters: None,
) -> tuple[Array, History]:
    """Run full-batch Adam from ``start``; return a copy of the parameters of the lowest loss, and
    the ``fit_history``.

    Parameters
    ----------
    max_epochs : maximum number of evaluations of the objective, at least 1.
    patience : stop after this number of successive epochs without a decrease of more than
        ``min_delta``.
    watch : called with epoch and parameters ``(P,)`` before each step.
    """
    parameters, adam = start.copy(), Adam(start.size, learning_rate)
    best, best_epoch, losses = start.copy(), 0, []
    reference, waited = np.inf, 0
    for epoch in range(max_epochs):
        loss, gradient = objective(parameters)
        losses.append(float(loss))
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
