"""Association of two variables over samples: Pearson, Spearman, AUROC.

Plain NumPy, since training needs no SciPy; all take O(N log N) time and O(N) memory.
"""

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]


def ranks(values: ArrayLike) -> Floats:
    """Ranks (N,) from 1 on of values (N,); ties get the mean of the ranks that they share."""
    _, group, count = np.unique(np.asarray(values), return_inverse=True, return_counts=True)
    last = np.cumsum(count)
    return (last - (count - 1) / 2)[group]


def pearson(x: ArrayLike, y: ArrayLike) -> float:
    """Pearson correlation in [-1, 1] of x and y (N,); NaN where one of them is constant or empty."""
    first, second = (np.asarray(values, dtype=np.float64) for values in (x, y))
    # asked of the values, since a mean that is rounded leaves a constant a variance above zero
    if any(len(values) == 0 or values.min() == values.max() for values in (first, second)):
        return math.nan
    first, second = first - first.mean(), second - second.mean()
    # each divided by its own norm first: a product of tiny norms would underflow
    value = float((first / np.linalg.norm(first)) @ (second / np.linalg.norm(second)))
    return min(max(value, -1.0), 1.0)


def spearman(x: ArrayLike, y: ArrayLike) -> float:
    """Spearman's rank correlation in [-1, 1] of x and y (N,): Pearson's of their ranks."""
    return pearson(ranks(x), ranks(y))


def auroc(scores: ArrayLike, positive: ArrayLike) -> float:
    """Probability that a positive sample scores above a negative one, ties counting half.

    Parameters
    ----------
    scores : (N,).
    positive : (N,) bool.

    Returns
    -------
    float
        The Mann-Whitney U statistic over the number of pairs, in [0, 1]; NaN without both kinds.
    """
    chosen = np.asarray(positive, dtype=bool)
    m, n = int(chosen.sum()), int((~chosen).sum())
    if m == 0 or n == 0:
        return math.nan
    return float((ranks(scores)[chosen].sum() - m * (m + 1) / 2) / (m * n))
