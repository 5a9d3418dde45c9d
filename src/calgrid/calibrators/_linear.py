"""Multinomial logistic regression near a given start: a scale a class or a full matrix, with biases and ridge."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from calgrid.calibrators._probabilities import LEAST_EXPONENT, row_blocks, softmax
from calgrid.errors import DataError

Array = NDArray[np.float64]
#: most classes of maps with K^2 weights
MAX_CLASSES = 200
#: largest component of the gradient at which a fit is done, in the scaled variables of the optimiser
GRADIENT_TOLERANCE = 1e-7
#: enough for the tolerance unless the data are nearly separable, where the loss has hardly a minimum
MAX_ITERATIONS = 300
#: curvature of a weight, relative to the largest, below which its scale is not adapted further
LEAST_CURVATURE = 1e-8


def check_classes(calibrator: str, n_classes: int) -> None:
    """Raise DataError if a map with K^2 weights would be too large."""
    if n_classes > MAX_CLASSES:
        raise DataError(
            f"calibrator '{calibrator}' has K^2 weights and takes at most {MAX_CLASSES} classes, got {n_classes}: "
            "use 'svs', which has 2K."
        )


@dataclass(frozen=True)
class LinearMap:
    """``softmax(w * x + b)`` with weight ``(K,)``, or ``softmax(W x + b)`` with weight ``(K, K)``; bias ``(K,)``."""

    weight: Array
    bias: Array

    def probabilities(self, inputs: Array) -> Array:
        """Return probabilities ``(N, K)`` of inputs ``(N, K)``."""
        scores = inputs * self.weight if self.weight.ndim == 1 else inputs @ self.weight.T
        scores += self.bias
        scores -= scores.max(axis=1, keepdims=True)
        return softmax(scores)


class LinearLikelihood:
    """Mean NLL of a :class:`LinearMap`, with its gradient and the diagonal of its Hessian."""

    def __init__(self, inputs: Array, labels: NDArray[np.int64]) -> None:
        self._inputs, self._labels = inputs, labels

    def __call__(self, weight: Array, bias: Array) -> tuple[float, Array, Array]:
        """Return the mean NLL and its gradients in weight and bias."""
        n_samples, n_classes = self._inputs.shape
        loss, d_weight, d_bias = 0.0, np.zeros_like(weight), np.zeros_like(bias)
        for block in row_blocks(n_samples, n_classes):
            inputs, rows = self._inputs[block], np.arange(block.stop - block.start)
            scores = inputs * weight if weight.ndim == 1 else inputs @ weight.T
            scores += bias
            scores -= scores.max(axis=1, keepdims=True)
            true = scores[rows, self._labels[block]].sum()
            np.exp(np.maximum(scores, LEAST_EXPONENT, out=scores), out=scores)
            total = scores.sum(axis=1, keepdims=True)
            loss += float(np.log(total).sum() - true)
            scores /= total
            scores[rows, self._labels[block]] -= 1.0
            d_bias += scores.sum(axis=0)
            d_weight += np.einsum("nk,nk->k", scores, inputs) if weight.ndim == 1 else scores.T @ inputs
        return loss / n_samples, d_weight / n_samples, d_bias / n_samples

    def curvature(self, weight: Array, bias: Array) -> tuple[Array, Array]:
        """Return the second derivatives of the mean NLL in each entry of weight and bias."""
        n_samples, n_classes = self._inputs.shape
        d_weight, d_bias = np.zeros_like(weight), np.zeros_like(bias)
        for block in row_blocks(n_samples, n_classes):
            inputs = self._inputs[block]
            variance = LinearMap(weight, bias).probabilities(inputs)
            variance *= 1.0 - variance
            d_bias += variance.sum(axis=0)
            square = inputs**2
            d_weight += np.einsum("nk,nk->k", variance, square) if weight.ndim == 1 else variance.T @ square
        return d_weight / n_samples, d_bias / n_samples


@dataclass(frozen=True)
class PenalisedLikelihood:
    """``mean NLL + sum R (W - W_0)^2 + r sum b^2`` of a :class:`LinearMap`, as a function of one flat vector.

    Attributes
    ----------
    likelihood : the mean NLL.
    target : W_0, whose shape is that of the weight.
    weight_ridge : R, of the weight's shape or one number.
    bias_ridge : r.
    centre : a linear projection that every bias goes through.
    """

    likelihood: LinearLikelihood
    target: Array
    weight_ridge: Array | float
    bias_ridge: float
    centre: Callable[[Array], Array]

    def map(self, values: Array) -> LinearMap:
        """Return the map of a vector: weights row by row, then biases."""
        size = self.target.size
        return LinearMap(values[:size].reshape(self.target.shape), self.centre(values[size:]))

    def __call__(self, values: Array) -> tuple[float, Array]:
        """Return the loss and its gradient."""
        point = self.map(values)
        loss, d_weight, d_bias = self.likelihood(point.weight, point.bias)
        shift = point.weight - self.target
        loss += float((self.weight_ridge * shift**2).sum() + self.bias_ridge * point.bias @ point.bias)
        d_weight += 2.0 * self.weight_ridge * shift
        return loss, np.append(d_weight.ravel(), self.centre(d_bias + 2.0 * self.bias_ridge * point.bias))

    def scale(self, start: LinearMap) -> Array:
        """Return ``1 / sqrt(second derivative)`` of each variable at ``start``."""
        weight, bias = self.likelihood.curvature(start.weight, start.bias)
        curvature = np.append((weight + 2.0 * self.weight_ridge).ravel(), bias + 2.0 * self.bias_ridge)
        # where nothing curves, the largest is 0 too
        least = max(LEAST_CURVATURE * curvature.max(), np.finfo(np.float64).tiny)
        return 1.0 / np.sqrt(np.maximum(curvature, least))


def fit_linear(
    inputs: Array,
    labels: NDArray[np.int64],
    start: LinearMap,
    *,
    weight_ridge: Array | float = 0.0,
    bias_ridge: float = 0.0,
    target: Array | None = None,
    bounds: tuple[Array, Array] | None = None,
    centre: Callable[[Array], Array] = np.asarray,
    tolerance: float = GRADIENT_TOLERANCE,
    max_iterations: int = MAX_ITERATIONS,
) -> tuple[LinearMap, dict[str, Any]]:
    """Minimise :class:`PenalisedLikelihood`, which is convex, by L-BFGS-B on variables of like curvature.

    Parameters
    ----------
    inputs : finite x ``(N, K)``.
    start : where the minimisation begins.
    weight_ridge, bias_ridge, target, centre : of the loss; the target is the start's weight where None.
    bounds : least and largest weight, each of the weight's shape; equal ones fix an entry.
    tolerance, max_iterations : of the optimiser.

    Returns
    -------
    The map, and for a ``fit_history`` ``loss`` (with penalty), ``nll``, ``iterations`` and ``gradient_norm`` (largest
    component of the gradient, of those that no bound holds).
    """
    likelihood = LinearLikelihood(inputs, labels)
    target = start.weight if target is None else target
    objective = PenalisedLikelihood(likelihood, target, weight_ridge, bias_ridge, centre)
    scale = objective.scale(start)
    lower, upper = np.full(len(scale), -np.inf), np.full(len(scale), np.inf)
    if bounds is not None:
        lower[: target.size], upper[: target.size] = bounds[0].ravel(), bounds[1].ravel()

    def scaled(variables: Array) -> tuple[float, Array]:
        loss, gradient = objective(variables * scale)
        return loss, gradient * scale

    found = minimize(
        scaled,
        np.append(start.weight.ravel(), start.bias) / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=np.stack([lower / scale, upper / scale], axis=1),
        options={"maxcor": 20, "ftol": 0.0, "gtol": tolerance, "maxiter": max_iterations, "maxfun": 2 * max_iterations},
    )
    values = np.clip(found.x * scale, lower, upper)
    (loss, gradient), result = objective(values), objective.map(values)
    free = ((values > lower) | (gradient < 0.0)) & ((values < upper) | (gradient > 0.0)) & (lower < upper)
    return result, {
        "loss": loss,
        "nll": likelihood(result.weight, result.bias)[0],
        "iterations": int(found.nit),
        "gradient_norm": float(np.abs(gradient[free]).max(initial=0.0)),
    }
