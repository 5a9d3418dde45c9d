"""Posterior of the class of an 8-bit image that is a picture of a finite bank plus Gaussian noise.

A stored pixel v is round(b + noise), clipped to 0..255, where b is the pixel of the picture. With s the standard
deviation of the noise and F the normal distribution function, its distribution is

    P(v | b) = F((v + 1/2 - b) / s) - F((v - 1/2 - b) / s)   for 0 < v < 255,
    P(0 | b) = F((1/2 - b) / s),      P(255 | b) = 1 - F((254.5 - b) / s),

and pixels are independent given the picture. With pictures drawn uniformly, Bayes' rule gives

    p(y | x) = sum_{j: y_j = y} prod_d P(x_d | b_jd) / sum_j prod_d P(x_d | b_jd),

exact up to rounding. Everything is computed in the log domain.
"""

import numpy as np
from numpy.typing import NDArray
from scipy import special

Floats = NDArray[np.float64]
PIXEL_VALUES = 256
#: images whose products with the whole bank are in memory at once
CHUNK = 256


def log_cells(levels: NDArray[np.uint8], sigma: float) -> Floats:
    """Log-probability of each stored value 0..255 given each pixel of ``levels`` ``(L,)``: ``(L, 256)``."""
    centre = np.arange(PIXEL_VALUES) - levels[:, None].astype(np.float64)
    low, high = (centre - 0.5) / sigma, (centre + 0.5) / sigma
    low[:, 0], high[:, -1] = -np.inf, np.inf
    # in the upper tail both distribution functions round to 1, so it is mirrored to the lower one
    mirrored = low > 0
    low, high = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    upper, lower = special.log_ndtr(high), special.log_ndtr(low)
    return upper + np.log1p(-np.exp(lower - upper))


def class_posterior(
    images: NDArray[np.uint8], bank: NDArray[np.uint8], labels: NDArray[np.int64], n_classes: int, sigma: float
) -> Floats:
    """Return the posterior ``(N, K)`` of the class of each image.

    Parameters
    ----------
    images : stored pixels ``(N, D)``.
    bank : pictures ``(J, D)``, of which each image shows one, all equally likely.
    labels : class ``(J,)`` of each picture, from 0.
    n_classes : K.
    sigma : standard deviation of the noise, in pixel values.
    """
    levels, level = np.unique(bank, return_inverse=True)
    # log P(x | picture) is a sum over pixels of table entries: a product with the pictures as one-hot levels
    shown = (level.reshape(bank.shape)[:, :, None] == np.arange(len(levels))).reshape(len(bank), -1)
    shown, table = shown.T.astype(np.float64), log_cells(levels, sigma).T
    member = (labels[:, None] == np.arange(n_classes)).astype(np.float64)
    parts = []
    for start in range(0, len(images), CHUNK):
        chunk = table[images[start : start + CHUNK]]
        log_likelihood = chunk.reshape(len(chunk), -1) @ shown
        parts.append(special.softmax(log_likelihood, axis=1) @ member)
    posterior = np.concatenate([np.empty((0, n_classes)), *parts])
    return posterior / posterior.sum(axis=1, keepdims=True)
