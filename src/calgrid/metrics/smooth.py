"""Smooth calibration error: a calibration measure without bins."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics._inputs import Probabilities, check_probabilities

#: kinks of a concave function on one side of its maximum, nearest last: (position - offset,
#: decrease of the slope)
_Kinks = list[tuple[float, float]]


def smce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Smooth calibration error, ``max_w sum_i w(p_i) (a_i - p_i) / N`` over 1-Lipschitz w: [0, 1]
    -> [-1, 1]; exact.

    It differs from smECE (the kernel estimate of Błasiok and Nakkiran 2024).

    Computed by dynamic programming over the sorted confidences. F_j(x), the best sum over the first
    j with w_j = x, is concave and piecewise linear on [-1, 1], stored as its maximum and the kinks
    on both sides. Between two confidences w may change by their distance, which moves both sides
    apart; a new residual adds a linear function, so the maximum moves over kinks, which change
    sides in order of position: each side is a stack.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.

    Raises
    ------
    DataError : as in :func:`calgrid.metrics.ece`.

    Source: Kakade and Foster 2008; Błasiok, Gopalan, Hu and Nakkiran, STOC 2023, definition of
    smCE.
    """
    predictions = check_probabilities(probs, labels)
    distinct, group = np.unique(predictions.confidence, return_inverse=True)
    residual = np.bincount(group, predictions.correct - predictions.confidence)
    return best_witness(distinct, residual / predictions.n_samples)


def best_witness(positions: NDArray[np.float64], residual: NDArray[Any]) -> float:
    """max_w sum_j w(x_j) r_j over 1-Lipschitz w: [0, 1] -> [-1, 1], for ascending x_j (G,) and r_j
    (G,).
    """
    left: _Kinks = []
    right: _Kinks = []
    best = 0.0
    for offset, slope in zip((positions - positions[0]).tolist(), residual.tolist(), strict=True):
        if slope > 0:
            best += _climb(right, left, offset, slope)
        elif slope < 0:
            best += _climb(left, right, offset, -slope)
    return best


def _climb(uphill: _Kinks, downhill: _Kinks, offset: float, slope: float) -> float:
    """Add a linear function to the concave one: move its maximum uphill and return by how much it
    rose.

    Positions are measured outwards from 0, so the two sides have opposite signs, and both end at a
    boundary at 1. The kink at which the slope reaches 0 is split between the sides.
    """
    wall, rest, reached, rise = 1.0 - offset, slope, -offset, 0.0
    while uphill and uphill[-1][0] < wall:
        kink, drop = uphill[-1]
        rise += rest * (kink - reached)
        reached = kink
        if drop > rest:
            uphill[-1] = (kink, drop - rest)
            break
        uphill.pop()
        downhill.append((-kink - 2 * offset, drop))
        rest -= drop
    else:
        rise += rest * (wall - reached)
        reached = wall
    downhill.append((-reached - 2 * offset, rest))
    return rise
