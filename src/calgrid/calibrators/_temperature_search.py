"""One temperature for an objective that may have several minima: a scan, then golden section."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._objectives import Evidence, Objective
from calgrid.calibrators._temperature import BETA_BOUNDS

#: temperatures of the scan, evenly spaced in ln T
N_SCANNED = 100
#: golden-section steps; they narrow a bracket of two scan intervals to 1e-8 of T
N_STEPS = 35
_SHRINK = (np.sqrt(5.0) - 1.0) / 2.0
#: a decrease below this is rounding
TOLERANCE = 1e-12
#: a temperature this close to a bound, relatively, is at the bound
_AT_BOUND = 1e-6


@dataclass(frozen=True)
class TemperatureSearch:
    """Result of :func:`search_temperature`.

    Attributes
    ----------
    beta : inverse temperature 1/T.
    losses : the objective at each temperature that was tried: the scan in rising T, then the section.
    at_lower_bound, at_upper_bound : beta is the smallest or the largest allowed.
    """

    beta: float
    losses: list[float] = field(repr=False)
    at_lower_bound: bool
    at_upper_bound: bool


def search_temperature(
    logits: NDArray[np.float64], labels: NDArray[np.int64], objective: Objective
) -> TemperatureSearch:
    """Minimise an objective over T in [0.05, 100]: the best of 100 log-spaced T, refined between its neighbours.

    Where nothing is lower than at T = 1, T stays 1.

    Parameters
    ----------
    logits : ``(N, K)`` float64 with row maximum 0; -inf allowed.
    labels : ``(N,)``.
    """
    lower, upper = BETA_BOUNDS
    evidence = Evidence.gather(logits, labels, lower, objective.reach * upper)
    tried: dict[float, float] = {}

    def loss(log_temperature: float) -> float:
        if log_temperature not in tried:
            tried[log_temperature] = objective(evidence, np.full(len(labels), np.exp(-log_temperature)))[0]
        return tried[log_temperature]

    grid = np.linspace(-np.log(upper), -np.log(lower), N_SCANNED)
    best = int(np.argmin([loss(float(point)) for point in grid]))
    left, right = float(grid[max(best - 1, 0)]), float(grid[min(best + 1, N_SCANNED - 1)])
    for _ in range(N_STEPS):
        width = _SHRINK * (right - left)
        if loss(right - width) <= loss(left + width):
            right = left + width
        else:
            left = right - width
    found = min(tried, key=lambda point: tried[point])
    # a flat loss, such as that of equal logits, is no reason to change anything
    found = found if tried[found] < loss(0.0) - TOLERANCE else 0.0
    return TemperatureSearch(
        beta=float(np.clip(np.exp(-found), lower, upper)),
        losses=list(tried.values()),
        at_lower_bound=bool(grid[-1] - found < _AT_BOUND),
        at_upper_bound=bool(found - grid[0] < _AT_BOUND),
    )
