"""Proximity of samples to the validation samples in feature space."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import row_blocks

Array = NDArray[np.float64]
#: maximum number of distances in memory
_BLOCK = 1 << 22


def unit_rows(features: Array) -> Array:
    """Divide each row ``(N, d)`` by its L2 norm; rows of zeros are not changed."""
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms > 0.0, norms, 1.0)


class Neighbours(NamedTuple):
    """Validation features, and proximities to them.

    The proximity of x is the mean of ``exp(-|x - x_j|^2)`` over its k nearest validation features, all of unit norm.
    The search is exact, by one matrix product per block of rows.

    Attributes
    ----------
    points : ``(N, d)`` unit rows; float32 halves the size of saved fits.
    k : number of neighbours, at most N - 1.
    """

    points: NDArray[np.float32]
    k: int

    @classmethod
    def of(cls, features: Array, k: int) -> Self:
        """Store validation features ``(N, d)``; k is at most N - 1."""
        return cls(unit_rows(features).astype(np.float32), min(k, len(features) - 1))

    def proximity(self, features: Array | None = None) -> Array:
        """Return the proximity ``(M,)`` of features ``(M, d)``; by default of each validation sample to the others.

        It is 1 if there is no other sample.
        """
        points = self.points.astype(np.float64)
        queries = points if features is None else unit_rows(features)
        if self.k == 0:
            return np.ones(len(queries))
        squares = np.einsum("nd,nd->n", points, points)
        result = np.empty(len(queries))
        for block in row_blocks(len(queries), len(points), _BLOCK):
            rows = queries[block]
            distance = squares - 2.0 * (rows @ points.T)
            distance += np.einsum("nd,nd->n", rows, rows)[:, None]
            if features is None:
                np.fill_diagonal(distance[:, block], np.inf)
            nearest = np.partition(distance, self.k - 1, axis=1)[:, : self.k]
            result[block] = np.exp(-np.maximum(nearest, 0.0)).mean(axis=1)
        return result
