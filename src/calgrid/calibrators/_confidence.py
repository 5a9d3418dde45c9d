"""Top-label confidence for one inverse temperature per sample, at a cost independent of K.

With gaps ``g_k = z_top - z_k`` of the other classes and the margin ``m = min g_k``::

    rest(beta) = ln sum_{k != top} exp(-beta (g_k - m))     in [0, ln(K - 1)], decreasing
    confidence = sigmoid(beta m - rest(beta))

Objectives of the confidence need only m and ``rest``. ``rest`` is smooth in ln beta, so a table per
sample replaces its K logits; the margin, the steep part, is exact.
:mod:`calgrid.calibrators._objectives` derives more from the same table.
"""

import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._network import sigmoid
from calgrid.calibrators._probabilities import Array
from calgrid.metrics.moments import row_blocks

#: replaces an infinite gap (an impossible class), so that it can be multiplied by 0
_WIDE = 1e100
_NODES_PER_DECADE = 21
#: entries of one block of samples, which fits into the processor's cache
_BLOCK = 1 << 15


def margin_and_excess(logits: Array) -> tuple[Array, Array]:
    """Return margins m ``(N,)`` and excess gaps ``max(g_k - m, 0)`` ``(N, K)`` of logits with row
    maximum 0.

    A margin is inf if only one class is possible. The excess is 0 for the predicted and the second
    largest class.
    """
    margin = -np.partition(logits, -2, axis=1)[:, -2]
    excess = np.minimum(-logits, _WIDE)
    excess -= np.minimum(margin, _WIDE)[:, None]
    return margin, np.maximum(excess, 0.0, out=excess)


def log_rest(excess: Array, beta: Array) -> tuple[Array, Array]:
    """Return rest(beta) ``(N,)`` and its derivative in beta ``(N,)``, exactly, from the excess gaps
    ``(N, K)``.

    Parameters
    ----------
    beta : inverse temperatures, ``(N,)``, or ``(1,)`` for all samples.
    """
    weights = np.exp(-beta[:, None] * excess)
    # without the exp(0) of the predicted class; that of the second largest remains, so the
    # difference is at least 1
    total = weights.sum(axis=1) - 1.0
    return np.log(total), -np.einsum("nk,nk->n", weights, excess) / total


class RestTable:
    """rest(beta) of N samples by cubic Hermite interpolation in ln beta, with the interpolant's own
    derivative.

    Outside the nodes the value is that of the nearest node and the derivative 0.

    Parameters
    ----------
    excess : ``(N, K)`` from :func:`margin_and_excess`.
    lower, upper : range of beta; nodes are evenly spaced in ln beta, 21 per factor of ten.
    """

    def __init__(self, excess: Array, lower: float, upper: float) -> None:
        n_nodes = round(_NODES_PER_DECADE * np.log10(upper / lower)) + 1
        grid = np.linspace(np.log(lower), np.log(upper), n_nodes)
        self._first = grid[0]
        self._step = grid[1] - grid[0]
        self._last = n_nodes - 1
        self._values, self._slopes = np.empty((2, n_nodes, len(excess)))
        for block in row_blocks(len(excess), excess.shape[1], _BLOCK):
            for node, beta in enumerate(np.exp(grid)):
                self._values[node, block], self._slopes[node, block] = log_rest(
                    excess[block], np.array([beta])
                )
        # derivative per node spacing, as in the Hermite form
        self._slopes *= (np.exp(grid) * self._step)[:, None]
        self._count = len(excess)
        self._samples = np.arange(self._count)

    def rows(self, samples: NDArray[np.intp]) -> Self:
        """Return the table of some samples, as a view."""
        chosen = copy.copy(self)
        chosen._samples = self._samples[samples]
        return chosen

    def __call__(self, beta: Array) -> tuple[Array, Array]:
        """Return rest(beta) ``(N,)`` and its derivative in beta ``(N,)``, for a beta per sample."""
        position = (np.log(beta) - self._first) / self._step
        inside = np.clip(position, 0.0, self._last)
        node = np.minimum(inside.astype(np.intp), self._last - 1)
        x = inside - node
        left = node * self._count + self._samples
        right = left + self._count
        value, slope = self._values.take(left), self._slopes.take(left)
        rise, right_slope = self._values.take(right) - value, self._slopes.take(right)
        quadratic = 3.0 * rise - 2.0 * slope - right_slope
        cubic = slope + right_slope - 2.0 * rise
        derivative = (slope + x * (2.0 * quadratic + 3.0 * x * cubic)) * (inside == position)
        return value + x * (slope + x * (quadratic + x * cubic)), derivative / (beta * self._step)


def confidence(margin: Array, beta: Array, rest: Array, d_rest: Array) -> tuple[Array, Array]:
    """Return confidence ``(N,)`` and its derivative in beta ``(N,)`` from rest(beta) and its
    derivative.

    ``margin`` must be finite: a sample with one possible class has confidence 1 for every beta.
    """
    probability = sigmoid(beta * margin - rest)
    return probability, probability * (1.0 - probability) * (margin - d_rest)
