"""Inverse temperature of lowest loss, for differentiable losses that may have several local minima."""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

from calgrid.calibrators._temperature import BETA_BOUNDS, TemperatureFit

Array = NDArray[np.float64]
#: beta, rows -> mean loss over these rows and its derivative in beta
Objective = Callable[[float, slice], tuple[float, float]]

#: number of intervals of the scan, equal in ln beta; beta = 1 is evaluated, too
N_SCANNED = 50
#: number of samples in the scan, which only selects a local minimum; it is refined on all samples
N_ROWS = 1000
#: initial width of the bracket around the result of the scan, as a factor
FINE_STEP = 1.01
#: losses and derivatives closer than this are equal
TOLERANCE = 1e-12


def lowest_beta(objective: Objective, n_samples: int) -> TemperatureFit:
    """Minimise over beta in [0.01, 20]: scan and root of the derivative on some samples, then the root on all samples.

    The first search uses every ``ceil(N / 1000)``-th sample. From there a bracket is widened until the derivative over
    all samples changes its sign; Brent's method finds the root to 1e-10. If the loss is flat at beta = 1, beta stays 1.

    Parameters
    ----------
    objective : see :data:`Objective`.
    n_samples : N.
    """
    step, some = (BETA_BOUNDS[1] / BETA_BOUNDS[0]) ** (1.0 / N_SCANNED), -(-n_samples // N_ROWS)
    grid = np.sort(np.append(np.geomspace(*BETA_BOUNDS, N_SCANNED + 1), 1.0))
    partial = functools.cache(lambda beta: objective(beta, slice(None, None, max(1, some))))
    losses = np.array([partial(beta)[0] for beta in grid.tolist()])
    # among equal losses the beta closest to 1
    start = float(min(grid[losses <= losses.min() + TOLERANCE], key=lambda beta: abs(np.log(beta))))
    beta = _root(partial, start, step)
    if some > 1:
        partial = functools.cache(lambda beta: objective(beta, slice(None)))
        beta = _root(partial, beta, FINE_STEP)
    return TemperatureFit(beta, partial(beta)[0], beta == BETA_BOUNDS[0], beta == BETA_BOUNDS[1])


def _root(objective: Callable[[float], tuple[float, float]], start: float, ratio: float) -> float:
    """Return the local minimum next to ``start``: the zero of the derivative, or the bound."""
    here, begin = objective(start)[1], start
    if abs(here) <= TOLERANCE:
        return start
    bound = BETA_BOUNDS[int(here < 0.0)]
    while begin != bound:
        end = max(begin / ratio, bound) if here > 0.0 else min(begin * ratio, bound)
        if objective(end)[1] * here <= 0.0:
            return float(brentq(lambda beta: objective(beta)[1], *sorted((begin, end)), xtol=1e-300, rtol=1e-10))
        begin, ratio = end, ratio**2
    return bound
