"""Smooth calibration error: a calibration measure without bins."""

import numpy as np
from numpy.typing import ArrayLike

from calgrid.metrics._inputs import Floats, Places, Probabilities, check_probabilities

#: maximum distinct confidences for resamples of the smooth calibration error; more are merged into
#: equal cells
CELLS = 1000


def smce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Smooth calibration error, ``max_w sum_i w(p_i) (a_i - p_i) / N`` over 1-Lipschitz w: [0, 1]
    -> [-1, 1]; exact.

    It differs from smECE (the kernel estimate of Błasiok and Nakkiran 2024).

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
    return float(optimum(distinct, residual[None] / predictions.n_samples)[0])


def cells_of(confidence: Floats) -> tuple[Floats, Places]:
    """Ascending positions (G,) of cells of [0, 1] for the smooth calibration error, and the cell of
    each confidence (N,): the distinct ones, or CELLS equal cells if there are more.
    """
    positions, cell = np.unique(confidence, return_inverse=True)
    if len(positions) > CELLS:
        occupied, cell = np.unique(np.floor(confidence * CELLS), return_inverse=True)
        positions = (occupied + 0.5) / CELLS
    return positions, cell


def optimum(positions: Floats, residual: Floats) -> Floats:
    """max_w sum_j w(x_j) r_j over 1-Lipschitz w: [0, 1] -> [-1, 1], (R,), for ascending x_j (G,)
    and r_j (R, G).

    With S_j the sum of the first j of r, the dual of this linear programme is the minimum over E of
    ``sum_j (x_{j+1} - x_j) |S_j - E_j|`` plus the total variation of E from 0 to S_G. The distances
    sum to at most 1, so a step back costs twice its height and saves at most its height: E is
    monotone, its total variation is ``|S_G|``, and the rest is an isotonic regression.
    """
    sums = np.cumsum(residual, axis=1)
    sums *= np.where(sums[:, -1:] < 0, -1, 1)
    inner, total = sums[:, :-1], sums[:, -1]
    distances = np.diff(positions)
    nearest = _increasing(inner.clip(0, total[:, None]), distances)
    return total + np.abs(inner - nearest) @ distances


def _increasing(values: Floats, weights: Floats) -> Floats:
    """Non-decreasing rows that minimise ``sum_j weights_j |values_j - row_j|``, (R, J), of values
    (R, J) and weights (J,).

    Every entry is a value of its row. Each pass halves its possible ranks: of neighbours with the
    same ranks, entries up to the best place take the lower half.

    Source: Stout, Isotonic regression via partitioning, Algorithmica 2013.
    """
    rows, count = values.shape
    step = 1 << (count - 1).bit_length()
    first = np.arange(rows)[:, None] * step
    order = np.argsort(values, axis=1)
    ranks = np.empty_like(order)
    np.put_along_axis(ranks, order, first + np.arange(count), axis=1)
    rank, weight, place = ranks.ravel(), np.tile(weights, rows), np.arange(values.size)
    low = np.repeat(first, count)
    sums = np.zeros(values.size + 1)
    while step > 1:
        step //= 2
        # what the lower half costs more than the upper one, up to each entry
        np.cumsum(np.where(rank < low + step, -weight, weight), out=sums[1:])
        begin = np.flatnonzero(np.diff(low, prepend=-1))
        group = np.repeat(np.arange(len(begin)), np.diff(begin, append=values.size))
        least = np.minimum(sums[begin], np.minimum.reduceat(sums[1:], begin))
        best = np.flatnonzero(sums[1:] == least[group])
        last = np.full(len(begin), -1)
        last[group[best]] = best
        low += step * (place > last[group])
    # a weight that is lost in a sum may lead beyond the largest value
    chosen = np.minimum(low.reshape(rows, count) - first, count - 1)
    return np.take_along_axis(values, np.take_along_axis(order, chosen, axis=1), axis=1)
