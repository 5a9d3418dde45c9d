"""Multinomial logistic regression with ridge penalties towards a start: scales or a full matrix,
and biases.

The loss is convex and minimised by Newton's method. Each step solves the Newton equations over the
free entries (not at a bound) by conjugate gradients, preconditioned with one block per class, and
projects onto the bounds (Bertsekas, Projected Newton methods, SIAM J. Control Optim. 20, 1982;
steps and tolerances of the truncated solution: Nocedal & Wright, Numerical Optimization, Algorithm
7.1).
"""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from calgrid.calibrators._probabilities import Array, History, Labels, Mask, namespace
from calgrid.errors import DataError
from calgrid.metrics.moments import BLOCK, LEAST_EXPONENT, row_blocks

Linear = Callable[[Array], Array]
#: probabilities (N, K) -> mask (K, D) of free entries -> solution of the equations over these
Blocks = Callable[[Array], Callable[[Mask], Linear]]
#: maximum number of classes of maps with K^2 weights
MAX_CLASSES = 1000
#: gradient component at which a fit ends, and multiple above which the fit has not converged
GRADIENT_TOLERANCE, LOOSE = 1e-7, 10.0
#: with fewer rows a class some classes are often separable from the others: a small penalty on the
#: distance from the start makes the minimum of the loss unique, at which the fit then ends
FEW_ROWS, LEAST_RIDGE, EXACT_TOLERANCE = 40, 1e-8, 1e-13
#: smallest probability in the Hessian, because denormal numbers are slow
LEAST_PROBABILITY = 1e-30
#: maximum number of Newton steps, of conjugate gradient steps in each, and of rounds that fix
#: entries at their bounds
MAX_STEPS, MAX_INNER, MAX_ROUNDS = 100, 250, 5
#: minimum decrease as a fraction of the predicted one; minimum step; differences due to rounding
SUFFICIENT, SMALLEST_STEP, ROUNDING = 1e-4, 1e-10, 1e-14
#: largest change of a weight or bias in a step
LONGEST_STEP = 30.0
#: added to the diagonal of a block, as a share of its largest entry and at least, to make it
#: invertible
JITTER, TINY = 1e-10, np.finfo(np.float64).tiny


def check_classes(calibrator: str, n_classes: int) -> None:
    """Raise DataError if a map with K^2 weights would be too large."""
    if n_classes > MAX_CLASSES:
        raise DataError(
            f"calibrator '{calibrator}' has K^2 weights and takes at most {MAX_CLASSES} classes, "
            f"got {n_classes}; use 'svs', which has 2K."
        )


class LinearMap(NamedTuple):
    """``softmax(w * x + b)`` with weight ``(K,)``, or ``softmax(W x + b)`` with weight ``(K, K)``;
    bias ``(K,)``.
    """

    weight: Array
    bias: Array

    def scores(self, inputs: Array, impossible: Mask | None = None) -> Array:
        """Return scores ``(N, K)`` with row maximum 0 of inputs ``(N, K)``; -inf where a class is
        impossible ``(N, K)``, or its input is -inf with a scale above 0.
        """
        scores = inputs * self.weight if self.weight.ndim == 1 else inputs @ self.weight.T
        scores += self.bias
        xp = namespace(scores)
        if impossible is not None:
            scores = xp.where(impossible, -np.inf, scores)
        scores -= xp.amax(scores, axis=1, keepdims=True)
        return scores

    def flat(self) -> Array:
        """Return one row per class, weights before bias: ``(K, 2)`` or ``(K, K + 1)``."""
        return np.column_stack([self.weight, self.bias])


class FullDesign:
    """Scores ``x W^T + b`` of inputs ``(N, K)``, a linear function of ``[W b]`` ``(K, K + 1)``."""

    #: entries of a block of samples: every block reads all weights
    block = 1 << 18

    def __init__(self, inputs: Array, precision: type = np.float32) -> None:
        #: of products with the Hessian, which only give directions: single is twice as fast
        self.precision = precision
        self._inputs = np.column_stack([inputs, np.ones(len(inputs), dtype=inputs.dtype)])

    @functools.cached_property
    def rounded(self) -> "FullDesign":
        """The design in the precision of products with the Hessian."""
        return FullDesign(self._inputs[:, :-1].astype(self.precision), self.precision)

    def scores(self, block: slice, values: Array) -> Array:
        """Return the scores ``(n, K)`` of a block of samples."""
        return self._inputs[block] @ values.T

    def pull(self, block: slice, residual: Array) -> Array:
        """Return the gradient of the values for residuals ``(n, K)`` of a block."""
        return residual.T @ self._inputs[block]

    def blocks(self, probabilities: Array, ridge: Array) -> Blocks:
        """Return blocks ``s_k (C + m_k m_k^T) + 2 R_k`` of the Hessian, approximate, with one C for
        all classes, from probabilities ``(N, K)`` at the start.

        With the weights ``p_ik (1 - p_ik) / N``, s_k is their sum over the samples, m_k the mean of
        the inputs of class k, and C the covariance within classes. The penalties R_k of all classes
        are equal but for that of the diagonal of W. So one decomposition into eigenvectors solves
        all blocks, after two corrections of rank one (Sherman and Morrison).
        """
        size, mean = self._moments(probabilities)
        weight = _variance(probabilities).sum(axis=1)
        gram = self._inputs.T @ (weight[:, None] * self._inputs)
        gram = gram.astype(np.float64) / len(self._inputs)
        within = (gram - (size[:, None] * mean).T @ mean) / size.sum()
        classes = np.arange(len(ridge))
        common = 2.0 * np.append(ridge[classes - 1, classes], ridge[0, -1])
        common += JITTER * gram.diagonal().max() / len(ridge)
        excess = 2.0 * ridge[classes, classes] - common[:-1]
        root = 1.0 / np.sqrt(common)
        values, vectors = np.linalg.eigh(root[:, None] * within * root)
        values, vectors = np.maximum(values, 0.0), root[:, None] * vectors

        def at(probabilities: Array) -> Callable[[Mask], Linear]:
            size, mean = self._moments(probabilities)
            inverse = 1.0 / (size[:, None] * values + 1.0)

            def plain(right: Array) -> Array:
                return ((right @ vectors) * inverse) @ vectors.T

            of_mean = plain(mean)
            factor = size / (1.0 + size * np.vecdot(mean, of_mean))

            def with_mean(right: Array) -> Array:
                return plain(right) - (factor * np.vecdot(of_mean, right))[:, None] * of_mean

            of_own = with_mean(np.eye(*mean.shape))
            own = of_own[classes, classes]

            def over(free: Mask) -> Linear:
                held = excess / np.maximum(1.0 + excess * own, JITTER)
                correction = np.where(free[classes, classes], held, 1.0 / own)

                def solve(right: Array) -> Array:
                    solved = with_mean(right)
                    return solved - (correction * solved[classes, classes])[:, None] * of_own

                return solve

            return over

        return at

    def _moments(self, probabilities: Array) -> tuple[Array, Array]:
        """Return s ``(K,)`` and m ``(K, D)``."""
        variance = _variance(probabilities)
        sums = (variance.T @ self._inputs).astype(np.float64)
        total = np.maximum(sums[:, -1:], np.finfo(np.float32).tiny)
        return sums[:, -1] / len(variance), sums / total


class DiagonalDesign:
    """Scores ``x * w + b`` of inputs ``(N, K)`` as a linear function of ``[w b]`` ``(K, 2)``."""

    #: of products with the Hessian: double, because nothing bounds the weights of a separable class
    precision = np.float64
    #: entries of a block of samples: as in other sums over classes
    block = BLOCK

    def __init__(self, inputs: Array) -> None:
        self._inputs = inputs

    @property
    def rounded(self) -> "DiagonalDesign":
        return self

    def scores(self, block: slice, values: Array) -> Array:
        scores = self._inputs[block] * values[:, 0]
        scores += values[:, 1]
        return scores

    def pull(self, block: slice, residual: Array) -> Array:
        of_weights = np.einsum("nk,nk->k", residual, self._inputs[block])
        return np.stack([of_weights, residual.sum(axis=0)], axis=1)

    def blocks(self, probabilities: Array, ridge: Array) -> Blocks:
        """As in :class:`FullDesign`, exact, ``(2, 2)`` for each class."""
        n_samples, n_classes = self._inputs.shape

        def at(probabilities: Array) -> Callable[[Mask], Linear]:
            sums = np.zeros((3, n_classes))
            for block in row_blocks(n_samples, n_classes):
                term, inputs = _variance(probabilities[block]), self._inputs[block]
                for power in range(3):
                    sums[power] += term.sum(axis=0)
                    term *= inputs
            plain, mixed, square = sums / n_samples
            whole = np.array([[square, mixed], [mixed, plain]]).transpose(2, 0, 1)
            np.einsum("kdd->kd", whole)[...] += 2.0 * ridge

            def over(free: Mask) -> Linear:
                blocks = np.where(free[:, :, None] & free[:, None, :], whole, 0.0)
                diagonal = np.einsum("kdd->kd", blocks)
                diagonal += JITTER * diagonal.max(axis=1, keepdims=True) + TINY
                diagonal[~free] = 1.0
                inverse = np.linalg.inv(blocks)
                return lambda right: (inverse @ right[:, :, None])[:, :, 0]

            return over

        return at


def _variance(probabilities: Array) -> Array:
    return probabilities * (1.0 - probabilities)


@dataclass(frozen=True)
class PenalisedLikelihood:
    """``mean NLL + sum R (V - V_0)^2`` of scores that are linear in the values V, one row per
    class.

    Attributes
    ----------
    design : maps values to scores.
    labels : ``(N,)``.
    ridge, target : R and V_0, of the shape of the values.
    impossible : ``(N, K)``, classes that have probability 0 in a row, or None.
    """

    design: FullDesign | DiagonalDesign
    labels: Labels
    ridge: Array
    target: Array
    impossible: Mask | None = None

    def __call__(self, values: Array) -> "LikelihoodPoint":
        """Return the loss at ``values`` and its derivatives."""
        n_samples, n_classes = len(self.labels), len(values)
        probabilities: Array = np.empty((n_samples, n_classes), dtype=self.design.precision)
        gradient, nll = np.zeros_like(values), 0.0
        for block in row_blocks(n_samples, n_classes, self.design.block):
            rows = np.arange(block.stop - block.start)
            scores = self.design.scores(block, values)
            if self.impossible is not None:
                scores[self.impossible[block]] = -np.inf
            scores -= scores.max(axis=1, keepdims=True)
            nll -= scores[rows, self.labels[block]].sum()
            np.exp(np.maximum(scores, LEAST_EXPONENT, out=scores), out=scores)
            total = scores.sum(axis=1, keepdims=True)
            nll += float(np.log(total).sum())
            scores /= total
            np.maximum(scores, LEAST_PROBABILITY, out=probabilities[block], casting="same_kind")
            scores[rows, self.labels[block]] -= 1.0
            gradient += self.design.pull(block, scores)
        shift = values - self.target
        loss = nll / n_samples + float((self.ridge * shift**2).sum())
        gradient = gradient / n_samples + 2.0 * self.ridge * shift
        return LikelihoodPoint(self, loss, gradient, probabilities)


@dataclass(frozen=True)
class LikelihoodPoint:
    """Loss, gradient ``(K, D)`` and probabilities ``(N, K)`` at one map."""

    problem: PenalisedLikelihood
    loss: float
    gradient: Array
    probabilities: Array

    def curve(self, direction: Array) -> Array:
        """Return the Hessian times a direction."""
        result, design = np.zeros_like(direction), self.problem.design.rounded
        rounded = direction.astype(self.probabilities.dtype)
        for block in row_blocks(len(self.probabilities), len(direction), design.block):
            probabilities = self.probabilities[block]
            change = design.scores(block, rounded)
            change -= np.vecdot(change, probabilities)[:, None]
            change *= probabilities
            result += design.pull(block, change)
        return result / len(self.probabilities) + 2.0 * self.problem.ridge * direction


def without_infinite(values: Array) -> tuple[Array, Mask | None]:
    """Return values ``(N, K)`` with 0 for -inf, and where these are, or None if there are none."""
    xp = namespace(values)
    if xp is np and values.min() > -np.inf:
        return values, None
    impossible = values == -np.inf
    return xp.where(impossible, 0.0, values), impossible


def minimise_within(
    problem: PenalisedLikelihood,
    start: Array,
    lower: Array,
    upper: Array,
    centre: Linear,
    tolerance: float,
) -> tuple[Array, float, float, int]:
    """Minimise until no free component of the gradient exceeds ``tolerance``.

    Returns the values ``(K, D)``, their loss, the largest free component of the gradient, and the
    number of steps.

    Parameters
    ----------
    start, lower, upper : initial values and bounds, ``(K, D)``; equal bounds fix an entry.
    centre : linear projection of ``(K, D)`` that is applied to gradients; it must not change
        ``start``.
    """
    values, point = start, problem(start)
    blocks = problem.design.rounded.blocks(point.probabilities, problem.ridge)
    for step in range(MAX_STEPS + 1):
        gradient = centre(point.gradient)
        held = (
            ((values <= lower) & (gradient >= 0.0))
            | ((values >= upper) & (gradient <= 0.0))
            | (lower == upper)
        )
        slope = np.where(held, 0.0, gradient)
        norm = float(np.abs(slope).max())
        if norm <= tolerance or step == MAX_STEPS:
            break
        precondition = blocks(point.probabilities)
        reach = lower - values, upper - values
        direction = _newton_direction(point, slope, ~held, centre, precondition, reach)
        # the loss of a separable class falls for ever; it must not shorten the steps of the others
        longest = np.abs(direction).max(axis=1, keepdims=True)
        limited = direction * (LONGEST_STEP / np.maximum(longest, LONGEST_STEP))
        if np.vdot(slope, limited) < 0.0:
            direction = limited
        lower_loss = _search(point, values, slope, direction, (lower, upper))
        if lower_loss is None:
            break
        values, point = lower_loss
    return values, point.loss, norm, step


def _newton_direction(
    point: LikelihoodPoint,
    slope: Array,
    free: Mask,
    centre: Linear,
    blocks: Callable[[Mask], Linear],
    reach: tuple[Array, Array],
) -> Array:
    """Return the Newton direction over the free entries, within the distances ``reach`` to the
    bounds.

    Entries that would cross a bound are moved to it, and the equations of the others are solved
    again.
    """
    exact = min(0.25, float(np.sqrt(np.abs(slope).max())))
    first = direction = _solve(point, -slope, free, centre, blocks, exact)
    for _ in range(MAX_ROUNDS):
        beyond = free & ((direction < reach[0]) | (direction > reach[1]))
        if not beyond.any():
            break
        free = free & ~beyond
        taken = np.where(free, 0.0, np.clip(direction, *reach))
        rest = np.where(free, -slope - centre(point.curve(taken)), 0.0)
        direction = taken + _solve(point, rest, free, centre, blocks, exact)
    return direction if np.vdot(slope, direction) < 0.0 else first


def _solve(
    point: LikelihoodPoint,
    right: Array,
    free: Mask,
    centre: Linear,
    blocks: Callable[[Mask], Linear],
    exact: float,
) -> Array:
    """Solve ``H d = right`` over the free entries until the preconditioned residual has shrunk by
    ``exact``.
    """
    solve = blocks(free)

    def precondition(right: Array) -> Array:
        return np.where(free, centre(solve(centre(right))), 0.0)

    direction, residual = np.zeros_like(right), right
    conditioned = precondition(residual)
    search, product = conditioned, np.vdot(residual, conditioned)
    enough = product * exact**2
    for _ in range(MAX_INNER):
        curved = np.where(free, centre(point.curve(search)), 0.0)
        curvature = np.vdot(search, curved)
        if curvature <= 0.0:
            break
        length = product / curvature
        direction = direction + length * search
        residual = residual - length * curved
        conditioned = precondition(residual)
        before, product = product, np.vdot(residual, conditioned)
        if product <= enough:
            break
        search = conditioned + product / before * search
    return direction


def _search(
    point: LikelihoodPoint,
    values: Array,
    slope: Array,
    direction: Array,
    bounds: tuple[Array, Array],
) -> tuple[Array, LikelihoodPoint] | None:
    """Backtracking line search; None if there is no decrease."""
    step = 1.0
    while step > SMALLEST_STEP:
        trial = np.clip(values + step * direction, *bounds)
        trial_point = point.problem(trial)
        promised = np.vdot(slope, trial - values)
        change = trial_point.loss - point.loss
        # a smaller change is due to rounding; the slope at the end of the step then says whether
        # the loss fell (approximate Wolfe condition, Hager & Zhang, SIAM J. Optim. 16, 2005)
        fell = np.vdot(trial_point.gradient, trial - values) <= (2.0 * SUFFICIENT - 1.0) * promised
        if change <= SUFFICIENT * promised or (abs(change) <= ROUNDING and fell):
            return trial, trial_point
        step *= 0.5
    return None


def fit_linear(
    inputs: Array,
    labels: Labels,
    start: LinearMap,
    *,
    weight_ridge: Array | float = 0.0,
    bias_ridge: float = 0.0,
    target: Array | None = None,
    bounds: tuple[Array, Array] | None = None,
    centre: Linear = np.asarray,
    tolerance: float = GRADIENT_TOLERANCE,
    impossible: Mask | None = None,
    exact: bool = False,
) -> tuple[LinearMap, History]:
    """Minimise ``mean NLL + sum R (W - W_0)^2 + r sum b^2``, which is convex, by Newton's method.

    Returns the map, and for a ``fit_history`` ``loss`` (with penalty), ``nll``, ``iterations``,
    ``gradient_norm`` (largest component of the gradient among entries not at a bound) and
    ``warnings``.

    Parameters
    ----------
    inputs : finite x ``(N, K)``.
    start : initial map.
    weight_ridge, bias_ridge : R, in the shape of the weight or a number, and r.
    target : W_0; default: the weight of ``start``.
    bounds : minimum and maximum of the weight, each in its shape; equal bounds fix an entry.
    centre : linear projection that is applied to biases.
    tolerance : largest gradient component at convergence.
    impossible : ``(N, K)``, classes that have probability 0 in a row, or None.
    exact : go on to a gradient of 1e-13, with all products in double precision.
    """
    precision: type = np.float32
    if exact:
        precision, tolerance = np.float64, EXACT_TOLERANCE
    is_diagonal = start.weight.ndim == 1
    design = DiagonalDesign(inputs) if is_diagonal else FullDesign(inputs, precision)
    ridge = np.column_stack(
        [np.broadcast_to(weight_ridge, start.weight.shape), np.full(len(start.bias), bias_ridge)]
    )
    goal = LinearMap(start.weight if target is None else target, np.zeros_like(start.bias))
    problem = PenalisedLikelihood(design, labels, ridge, goal.flat(), impossible)
    first = start.flat()
    lower, upper = np.full_like(first, -np.inf), np.full_like(first, np.inf)
    if bounds is not None:
        lower[:, :-1], upper[:, :-1] = (bound.reshape(len(first), -1) for bound in bounds)

    def centred_biases(values: Array) -> Array:
        return np.column_stack([values[:, :-1], centre(values[:, -1])])

    values, loss, gradient_norm, steps = minimise_within(
        problem, first, lower, upper, centred_biases, tolerance
    )
    weight = values[:, 0] if is_diagonal else values[:, :-1]
    limited = (lower < upper) & (np.isfinite(lower) | np.isfinite(upper))
    at_bound = int((limited & ((values <= lower) | (values >= upper))).sum())
    largest = LOOSE * (tolerance if exact else GRADIENT_TOLERANCE)
    at_end = (
        f"{at_bound} of {limited.sum()} weights with bounds ended at one: the loss still falls "
        "beyond."
    )
    unfinished = (
        f"after {steps} steps the largest component of the gradient is {gradient_norm:.1e}, above "
        f"{largest:.0e}"
    )
    return LinearMap(np.ascontiguousarray(weight), centre(values[:, -1])), {
        "loss": loss,
        "nll": loss - float((ridge * (values - goal.flat()) ** 2).sum()),
        "iterations": steps,
        "gradient_norm": gradient_norm,
        "warnings": [at_end] if at_bound else [],
        "unconverged": unfinished if gradient_norm > largest else "",
    }
