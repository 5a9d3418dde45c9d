"""The focal modulation that the focal family shares."""

from torch import Tensor

#: keeps the slope of ``x ** gamma`` finite at x = 0 for gamma < 1 (0 * inf would be NaN); far below 1 - p in float32
FLOOR = 1e-20


def complement(log_p: Tensor) -> Tensor:
    """``1 - p`` from ``log p`` (N,), exact also where p rounds to 1."""
    return -log_p.expm1()


def modulation(base: Tensor, gamma: float | Tensor) -> Tensor:
    """``base ** gamma`` for base (N,) in [0, inf), with finite gradients everywhere."""
    return base.clamp_min(FLOOR).pow(gamma)
