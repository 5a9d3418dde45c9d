"""The ECE of a perfectly calibrated model: the bias of the ECE at finite sample size."""

import numpy as np
from numpy.typing import ArrayLike

from calgrid.metrics._inputs import Floats, Probabilities, check_probabilities
from calgrid.metrics.binning import inner_edges

#: natural logarithm of the neglected probability mass of each bin
LOG_NEGLIGIBLE = np.log(1e-17)
#: complex factors in memory at once
BLOCK_ENTRIES = 2**18


def ece_null(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Expected ECE if the same confidences p_i were perfectly calibrated, ``a_i ~ Bernoulli(p_i)``,
    at this sample size.

    An ECE is evidence of miscalibration only if it exceeds this. The mean of ``|sum_{i in b} (p_i -
    a_i)|`` is exact (to about 1e-12), from the Poisson binomial distribution of the number of
    correct predictions in each bin, without simulation. The labels are only validated.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : number of equal-width bins.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`.

    Source: consistency resampling of Bröcker and Smith, Weather and Forecasting 2007, in the limit
    of infinitely many resamples; Poisson binomial law by Fourier transform, Hong, CSDA 2013.
    """
    predictions = check_probabilities(probs, labels)
    ascending = predictions.confidence[predictions.order]
    bounds = np.searchsorted(ascending, inner_edges(n_bins), side="right")
    deviation = sum(_mean_deviation(members) for members in np.split(ascending, bounds))
    return float(deviation / len(ascending))


def _mean_deviation(p: Floats) -> float:
    """E|S - E S| of the number S of successes of independent trials, probabilities ``p`` (n,)."""
    variance = (p * (1 - p)).sum()
    if variance == 0:  # an empty or deterministic bin
        return 0.0
    # first value and number of values with non-negligible mass, by Bernstein's inequality
    third = -LOG_NEGLIGIBLE / 3
    reach = int(np.ceil(third + np.sqrt(third**2 + 6 * third * variance)))
    first, period = int(p.sum()) - reach, 2 * reach + 2
    if period > len(p):
        first, period = 0, len(p) + 1
    # E exp(-2 pi i l S / period), l = 0 ... period // 2: Fourier transform of the mass
    angle = 2 * np.pi * np.arange(period // 2 + 1) / period
    # |E exp(-i t S)| is at most exp(-V (1 - cos t)); the inverse transform pads with zeros
    angle = angle[variance * (1 - np.cos(angle)) <= -LOG_NEGLIGIBLE]
    turn = np.expm1(-1j * angle)
    blocks = np.array_split(turn, -(-len(turn) * len(p) // BLOCK_ENTRIES))
    products = [np.prod(1 + block[:, None] * p, axis=1) for block in blocks]
    values = first + np.arange(period)
    mass = np.fft.irfft(np.concatenate(products), n=period)[values % period]
    return float(np.abs(values - p.sum()) @ mass)
