"""Warnings about doubtful fits: entries of ``fit_history["warnings"]``."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

#: relative distance within which a temperature is at its bound
AT_BOUND = 1e-3


def end_of_grid(name: str, chosen: float, grid: Sequence[float]) -> list[str]:
    """Warn if the choice is the first or last value of its grid."""
    if chosen not in (grid[0], grid[-1]):
        return []
    end = "smallest" if chosen == min(grid) else "largest"
    return [f"The {name} that was chosen, {chosen:g}, is the {end} of those tried: one beyond may do better."]


def temperatures_at_bounds(temperature: NDArray[np.float64], lowest: float, highest: float) -> list[str]:
    """Warn of samples whose temperature ``(N,)`` is at a bound."""
    at_bound = (temperature <= lowest * (1.0 + AT_BOUND)) | (temperature >= highest * (1.0 - AT_BOUND))
    if not at_bound.any():
        return []
    return [f"The temperature of {at_bound.mean():.2%} of the validation samples is the smallest or largest allowed."]
