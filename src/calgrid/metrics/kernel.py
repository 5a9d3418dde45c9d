"""Kernel smooth calibration error: a measure without bins and with automatic bandwidth."""

import numpy as np
from numpy.typing import ArrayLike
from scipy import fft, sparse

from calgrid.metrics._inputs import Floats, Probabilities, check_probabilities

#: grid points of [0, 1] for residuals and their smoothed sum
NODES = 2**12
POINTS = 2**10
#: tolerance of the bandwidth, and maximum number of steps (five are usual)
TOLERANCE = 1e-9
STEPS = 50
#: standard deviations beyond which a Gaussian, below 1e-42, is lost in any sum; its exponential is
#: slow there
FARTHEST = 14.0


def smece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Kernel smooth calibration error: the s at which smECE_s = s.

    smECE_s is the integral of ``|mean_i (p_i - a_i) K_s(t, p_i)|`` over t in [0, 1], with K_s a
    Gaussian of deviation s, reflected at 0 and 1; it decreases in s. It differs from smCE
    (:func:`calgrid.metrics.smce`). The fixed point has seven correct digits. For values below about
    0.003 the bandwidth is smaller than the grid resolution.

    The authors' package (relplot 1.0.3) differs in two ways. It stops its search at ``2^(-10)`` and
    sums over 200 points or a few more, which has little effect. And its reflection omits the mirror
    image of the last grid point, so that half of the samples at a confidence of about 1 are lost,
    from the residuals and from the density that it divides them by. Its values for saturated
    confidences are then too small or too large: 0.408 with 700 samples at 1, 200 at 0.9 and 100 at
    0.6, each half right, and 0.0606 for a ResNet-50 on CIFAR-10, where the integral above (by
    quadrature) and this function are 0.440 and 0.0434.

    Errors as in :func:`calgrid.metrics.ece`. Source: Błasiok and Nakkiran, ICLR 2024, definition 2.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.
    """
    predictions = check_probabilities(probs, labels)
    residual = (predictions.confidence - predictions.correct) / predictions.n_samples
    nodes = residual @ node_shares(predictions.confidence)
    return float(fixed_points(nodes[None])[0])


def node_shares(confidence: Floats) -> sparse.csr_array:
    """Linear interpolation weights of samples on the NODES cells of [0, 1], sparse (N, NODES).

    Each sample is split between the two nearest centres; beyond the outermost centres it is
    reflected.
    """
    place = confidence * NODES - 0.5
    left = np.floor(place)
    share = place - left
    columns = np.concatenate([left, left + 1]).clip(0, NODES - 1).astype(np.intp)
    rows = np.tile(np.arange(len(confidence)), 2)
    return sparse.csr_array(
        (np.concatenate([1 - share, share]), (rows, columns)), shape=(len(confidence), NODES)
    )


def fixed_points(nodes: Floats) -> Floats:
    """The s at which smECE_s = s, (R,), of residuals on the nodes (R, NODES).

    Smoothing keeps the mean residual, so s is at least its absolute value, and at most smECE there
    because smECE_s decreases. Solved within these limits by false position (Anderson and Björck,
    1973).
    """
    cosines = spectrum(nodes)
    low = np.abs(cosines[:, 0])
    high = smoothed(cosines, low)
    # smECE_s - s at both limits; its slope is at most -1, so it bounds the error in s
    above, below = high - low, smoothed(cosines, high) - high
    result = np.where(above <= TOLERANCE, low, high)
    rows = np.flatnonzero((above > TOLERANCE) & (below < -TOLERANCE))
    low, high, above, below = low[rows], high[rows], above[rows], below[rows]
    moved = np.zeros(len(rows))
    for _ in range(STEPS):
        middle = low + (high - low) * above / (above - below)
        rest = smoothed(cosines[rows], middle) - middle
        result[rows] = middle
        up = rest > 0
        # reduce the weight of a limit that stays twice, for faster convergence
        scale = 1 - rest / np.where(up, above, below)
        scale = np.where(moved == np.where(up, 1, -1), np.where(scale > 0, scale, 0.5), 1.0)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
        above, below = np.where(up, rest, above * scale), np.where(up, below * scale, rest)
        going = np.abs(rest) > TOLERANCE
        if not going.any():
            break
        rows, moved = rows[going], np.where(up, 1, -1)[going]
        low, high, above, below = low[going], high[going], above[going], below[going]
    # below the resolution of the cosines the result may exceed the sum of residuals, an upper bound
    return np.minimum(result, np.abs(nodes).sum(axis=1))


def spectrum(nodes: Floats) -> Floats:
    """Cosine coefficients (R, POINTS) of residuals on the nodes, corrected for the blur of linear
    interpolation.

    A reflected Gaussian multiplies coefficient k by exp(-(pi k s)^2 / 2).
    """
    wave = np.arange(POINTS)
    return fft.dct(nodes, type=2, axis=1)[:, :POINTS] / 2 / np.sinc(wave / (2 * NODES)) ** 2


def smoothed(cosines: Floats, bandwidth: Floats) -> Floats:
    """smECE_s, (R,), of :func:`spectrum` (R, POINTS) at one bandwidth s each, (R,)."""
    narrowest = np.pi * bandwidth.min(initial=1.0)
    count = int(min(FARTHEST / max(narrowest, TOLERANCE) + 1, POINTS))
    damped = np.exp(-0.5 * (np.pi * np.arange(count) * bandwidth[:, None]) ** 2)
    damped *= cosines[:, :count]
    return np.abs(fft.dct(damped, type=3, n=POINTS, axis=1)).mean(axis=1)
