"""Newton's method for convex functions of a matrix with bounds on its entries.

Each step solves the Newton equations over the free entries (not at a bound) by conjugate gradients, preconditioned with
one block per row, and projects onto the bounds (Bertsekas, Projected Newton methods, SIAM J. Control Optim. 20, 1982;
steps and tolerances of the truncated solution: Nocedal & Wright, Numerical Optimization, Algorithm 7.1).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Linear = Callable[[Array], Array]

#: maximum number of Newton steps, of conjugate gradient steps in each, and of rounds that fix entries at their bounds
MAX_STEPS, MAX_INNER, MAX_ROUNDS = 100, 250, 5
#: minimum decrease as a fraction of the predicted one; minimum step; differences due to rounding
SUFFICIENT, SMALLEST_STEP, ROUNDING = 1e-4, 1e-10, 1e-15
#: added to the diagonal of a block, as a share of its largest entry, to make it invertible
JITTER = 1e-10


class Point(Protocol):
    """A convex function and its derivatives at one argument ``(R, D)``."""

    @property
    def loss(self) -> float:
        """Value of the function."""
        ...

    @property
    def gradient(self) -> Array:
        """Its gradient ``(R, D)``."""
        ...

    def curve(self, direction: Array) -> Array:
        """Return the Hessian times a direction ``(R, D)``."""
        ...

    def blocks(self) -> Array:
        """Return the diagonal blocks of the Hessian, one per row, ``(R, D, D)``, or an approximation."""
        ...


@dataclass(frozen=True)
class NewtonResult:
    """Result of :func:`minimise_within`.

    Attributes
    ----------
    argument : ``(R, D)``.
    loss : its loss.
    gradient_norm : largest component of the gradient among the free entries.
    steps : number of Newton steps.
    """

    argument: Array
    loss: float
    gradient_norm: float
    steps: int


def minimise_within(
    at: Callable[[Array], Point], start: Array, lower: Array, upper: Array, centre: Linear, tolerance: float
) -> NewtonResult:
    """Minimise a convex function until no free component of its gradient exceeds ``tolerance``.

    Parameters
    ----------
    at : maps an argument ``(R, D)`` to the function and its derivatives there.
    start, lower, upper : initial argument and bounds, ``(R, D)``; equal bounds fix an entry.
    centre : linear projection of ``(R, D)`` that is applied to gradients; it must not change ``start``.
    """
    argument, point = start, at(start)
    for step in range(MAX_STEPS + 1):
        gradient = centre(point.gradient)
        held = ((argument <= lower) & (gradient >= 0.0)) | ((argument >= upper) & (gradient <= 0.0)) | (lower == upper)
        slope = np.where(held, 0.0, gradient)
        norm = float(np.abs(slope).max())
        if norm <= tolerance or step == MAX_STEPS:
            break
        reach = np.stack([lower - argument, upper - argument])
        direction = _newton_direction(point, slope, ~held, centre, reach)
        found = _search(at, point, argument, slope, direction, lower, upper)
        if found is None:
            break
        argument, point = found
    return NewtonResult(argument, point.loss, norm, step)


def _newton_direction(point: Point, slope: Array, free: NDArray[np.bool_], centre: Linear, reach: Array) -> Array:
    """Return the Newton direction over the free entries, within the distances ``reach`` ``(2, R, D)`` to the bounds.

    Entries that would cross a bound are moved to it, and the equations of the others are solved again.
    """
    blocks, exact = point.blocks(), min(0.25, float(np.sqrt(np.abs(slope).max())))
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


def _solve(point: Point, right: Array, free: NDArray[np.bool_], centre: Linear, blocks: Array, exact: float) -> Array:
    """Solve ``H d = right`` over the free entries until the preconditioned residual has shrunk by ``exact``."""
    precondition = _preconditioner(blocks, free, centre)
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


def _preconditioner(blocks: Array, free: NDArray[np.bool_], centre: Linear) -> Linear:
    """Return a function that solves the equations of the blocks over the free entries."""
    blocks = np.where(free[:, :, None] & free[:, None, :], blocks, 0.0)
    diagonal = np.einsum("rdd->rd", blocks)
    diagonal += JITTER * diagonal.max(axis=1, keepdims=True) + np.finfo(np.float64).tiny
    diagonal[~free] = 1.0
    inverse = np.linalg.inv(blocks)

    def solve(right: Array) -> Array:
        return np.where(free, centre((inverse @ centre(right)[:, :, None])[:, :, 0]), 0.0)

    return solve


def _search(
    at: Callable[[Array], Point],
    point: Point,
    argument: Array,
    slope: Array,
    direction: Array,
    lower: Array,
    upper: Array,
) -> tuple[Array, Point] | None:
    """Backtracking line search; None if there is no decrease."""
    step = 1.0
    while step > SMALLEST_STEP:
        trial = np.clip(argument + step * direction, lower, upper)
        found = at(trial)
        promised = np.vdot(slope, trial - argument)
        if found.loss <= point.loss + SUFFICIENT * promised + ROUNDING * abs(point.loss):
            return trial, found
        step *= 0.5
    return None
