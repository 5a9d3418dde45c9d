"""A small multilayer perceptron with one output and an analytic gradient.

The networks of post-hoc calibration have 49 to a few hundred weights; importing a deep-learning library would take
longer than fitting them in NumPy.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sigmoid(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` without overflow."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0.0, 1.0, small) / (1.0 + small)


def softplus(x: Array) -> Array:
    """Return ``ln(1 + exp(x))`` without overflow; its derivative is :func:`sigmoid`."""
    return np.maximum(x, 0.0) + np.log1p(np.exp(-np.abs(x)))


def inverse_softplus(y: float) -> float:
    """Return the x with ``softplus(x) = y``, for y > 0."""
    return y + float(np.log(-np.expm1(-y)))


@dataclass(frozen=True)
class MLP:
    """Linear layers with ReLU between them, from ``sizes[0]`` inputs to one output, as functions of a flat vector.

    All weights form one vector ``(P,)``, layer after layer, weights before bias. Samples are columns, so that each unit
    is contiguous in memory.

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
        """Draw a parameter vector ``(P,)``: weights and biases uniform in ±1/sqrt(fan_in), as PyTorch's Linear."""
        draws = [
            generator.uniform(-1.0, 1.0, (fan_in + 1) * fan_out) / np.sqrt(fan_in)
            for fan_in, fan_out in pairwise(self.sizes)
        ]
        return np.concatenate(draws)

    def glorot(self, generator: np.random.Generator) -> Array:
        """Draw a parameter vector ``(P,)``: weights uniform in ±sqrt(6 / (fan_in + fan_out)), biases 0, as Keras."""
        parameters = np.zeros(self.n_parameters)
        for weight, _ in self.layers(parameters):
            weight[...] = generator.uniform(-1.0, 1.0, weight.shape) * np.sqrt(6.0 / sum(weight.shape))
        return parameters

    def layers(self, parameters: Array) -> list[tuple[Array, Array]]:
        """Return weight ``(fan_out, fan_in)`` and bias ``(fan_out, 1)`` of each layer, as views of the vector."""
        views, begin = [], 0
        for fan_in, fan_out in pairwise(self.sizes):
            middle, end = begin + fan_in * fan_out, begin + (fan_in + 1) * fan_out
            views.append((parameters[begin:middle].reshape(fan_out, fan_in), parameters[middle:end].reshape(-1, 1)))
            begin = end
        return views

    def forward(self, parameters: Array, inputs: Array) -> tuple[Array, list[Array]]:
        """Return the output ``(N,)`` for inputs ``(D, N)``, and each layer's input for :meth:`gradient`."""
        signal, kept = inputs, []
        layers = self.layers(parameters)
        for depth, (weight, bias) in enumerate(layers):
            kept.append(signal)
            signal = weight @ signal
            signal += bias
            if depth < len(layers) - 1:
                np.maximum(signal, 0.0, out=signal)
        return signal[0], kept

    def gradient(self, parameters: Array, kept: list[Array], d_output: Array) -> Array:
        """Return d loss / d parameters ``(P,)`` from d loss / d output ``(N,)`` and the inputs of layers."""
        result = np.empty_like(parameters)
        slots = self.layers(result)
        delta = d_output[None, :]
        for depth in reversed(range(len(slots))):
            slots[depth][0][...] = delta @ kept[depth].T
            slots[depth][1][...] = delta.sum(axis=1, keepdims=True)
            if depth:
                delta = self.layers(parameters)[depth][0].T @ delta
                delta *= kept[depth] > 0.0
        return result
