"""Sums over the classes under a softmax, in blocks of rows that fit into the processor's cache."""

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: entries of one block of rows: a few arrays of this size fit into the processor's cache
BLOCK = 1 << 16
#: entries of one block of a product of matrices, which is faster in larger blocks
PRODUCT_BLOCK = 1 << 22
#: smaller exponents are lost in a sum with exp(0), and lead to denormal numbers, which are slow
LEAST_EXPONENT = -700.0


def row_blocks(n_samples: int, n_classes: int, size: int = BLOCK) -> list[slice]:
    """Split N rows into slices of at most ``size`` entries, at least one row."""
    rows = max(1, size // n_classes)
    return [slice(begin, min(begin + rows, n_samples)) for begin in range(0, n_samples, rows)]


def row_sums(values: Array) -> Array:
    """Sum of each row ``(N, K)``, (N,), in ascending order of its entries: permuting the classes
    changes no bit of the sum, so that rows with the same entries remain ties.
    """
    sums = np.empty(len(values))
    for block in row_blocks(*values.shape):
        ascending = np.array(values[block], order="C")  # how rows lie in memory changes sums, too
        ascending.sort(axis=1)
        ascending.sum(axis=1, out=sums[block])
    return sums


def moments(logits: Array, beta: float | Array) -> tuple[Array, Array, Array]:
    """Return, for each sample, ``ln sum_k exp(beta z_k)``, and mean and variance of z under
    ``softmax(beta z)``.

    The mean is the first derivative in beta of the logarithm, the variance the second. One pass
    over the logits, in blocks that fit into the processor's cache.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0; -inf allowed.
    beta : inverse temperature, one for all samples or ``(N,)``.
    """
    n_samples, n_classes = logits.shape
    total, first, second = np.empty((3, n_samples))
    betas = np.broadcast_to(np.asarray(beta, dtype=np.float64).reshape(-1, 1), (n_samples, 1))
    floor = LEAST_EXPONENT / betas
    ones = np.ones(n_classes)
    for block in row_blocks(n_samples, n_classes):
        # smaller terms are lost in the sum; -inf times 0 would be NaN, and denormal numbers are
        # slow
        finite = np.maximum(logits[block], floor[block])
        weights = finite * betas[block]
        np.exp(weights, out=weights)
        np.matmul(weights, ones, out=total[block])
        weights *= finite
        np.matmul(weights, ones, out=first[block])
        np.vecdot(weights, finite, out=second[block])
    first /= total
    second /= total
    second -= first**2
    return np.log(total, out=total), first, second
