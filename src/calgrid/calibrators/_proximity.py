"""Proximity of samples to the validation samples in feature space."""

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import Array
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks


def unit_rows(features: Array) -> Array:
    """Divide each row ``(N, d)`` by its L2 norm; rows of zeros are not changed."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0.0, norms, 1.0)


def proximity(known: NDArray[np.float32], k: int, features: Array | None = None) -> Array:
    """Return the mean of ``exp(-|x - x_j|^2)`` over the k nearest x_j, ``(M,)``; all x and x_j have
    unit norm.

    The search is exact, by one matrix product per block of rows.

    Parameters
    ----------
    known : x_j, unit rows ``(N, d)``; float32 halves the size of saved fits.
    k : number of neighbours, all if there are fewer than k + 1 rows.
    features : x ``(M, d)``; by default each row of ``known``, compared with the others (1 if there
        are none).
    """
    points, k = known.astype(np.float64), min(k, len(known) - 1)
    # a copy, as BLAS rounds the product of a matrix with its own transpose differently
    queries = points.copy() if features is None else unit_rows(features)
    if k == 0:
        return np.ones(len(queries))
    squares = np.einsum("nd,nd->n", points, points)
    result = np.empty(len(queries))
    for block in row_blocks(len(queries), len(points), PRODUCT_BLOCK):
        rows = queries[block]
        distance = squares - 2.0 * (rows @ points.T)
        distance += np.einsum("nd,nd->n", rows, rows)[:, None]
        if features is None:
            np.fill_diagonal(distance[:, block], np.inf)
        nearest = np.partition(distance, k - 1, axis=1)[:, :k]
        result[block] = np.exp(-np.maximum(nearest, 0.0)).mean(axis=1)
    return result
