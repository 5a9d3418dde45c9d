"""Kernel smooth calibration error: a calibration measure without bins whose smoothing chooses itself."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, sparse

from calgrid.metrics._inputs import Probabilities, check_probabilities

Floats = NDArray[np.float64]

#: points of [0, 1] to which residuals are assigned, and at which their smoothed sum is evaluated
NODES = 2**12
POINTS = 2**10
#: what the bandwidth may be off by, and steps after which it is left (five are usual)
TOLERANCE = 1e-9
STEPS = 50


def smece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Kernel smooth calibration error: the s at which smECE_s = s.

    smECE_s = integral over t in [0, 1] of |mean_i (p_i - a_i) K_s(t, p_i)|, with K_s a Gaussian of deviation s,
    reflected at 0 and 1; it decreases in s. Not smCE (:func:`calgrid.metrics.smce`), which is another number. This is
    the fixed point to seven digits. Values below about 0.003 are smoothed by less than the grid resolves.

    The authors' package (relplot 1.0.3) differs in two ways. It stops its search at 2^-10 and sums over 200 points,
    which matters little. And it loses half of the residuals at a confidence of 1: its reflection takes the last point
    of its mesh once, not once with its mirror image. Saturated confidences, frequent at K = 2, then come out too small:
    on one such set 0.42076, where the integral above, by quadrature, and this function are 0.43803.

    Errors as in :func:`calgrid.metrics.ece`. Source: Błasiok and Nakkiran, ICLR 2024, definition 2.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over all metrics.
    """
    predictions = check_probabilities(probs, labels)
    residual = (predictions.confidence - predictions.correct) / predictions.n_samples
    nodes = residual @ node_shares(predictions.confidence)
    return float(fixed_points(nodes[None])[0])


def node_shares(confidence: Floats) -> sparse.csr_array:
    """Share of each sample that falls to each of the NODES cells of [0, 1], sparse (N, NODES).

    Each is divided between the two nearest centres in proportion; beyond the outermost centres, reflected.
    """
    place = confidence * NODES - 0.5
    left = np.floor(place)
    share = place - left
    columns = np.concatenate([left, left + 1]).clip(0, NODES - 1).astype(np.intp)
    rows = np.tile(np.arange(len(confidence)), 2)
    return sparse.csr_array((np.concatenate([1 - share, share]), (rows, columns)), shape=(len(confidence), NODES))


def smoothed(nodes: Floats, bandwidth: Floats) -> Floats:
    """smECE_s, (R,), of residuals on the nodes (R, NODES) at one bandwidth s each, (R,)."""
    return _smoothed(_spectrum(nodes), bandwidth)


def fixed_points(nodes: Floats) -> Floats:
    """The s at which smECE_s = s, (R,), of residuals on the nodes (R, NODES).

    No smoothing takes away the mean residual, so s is at least its size, and as smECE_s decreases, at most smECE there.
    Within these limits by false position, in the form of Anderson and Björck (1973).
    """
    spectrum = _spectrum(nodes)
    low = np.abs(spectrum[:, 0])
    high = _smoothed(spectrum, low)
    # how far smECE_s lies above s at both limits; it falls at least as fast as s grows, so this bounds the error in s
    above, below = high - low, _smoothed(spectrum, high) - high
    found = np.where(above <= TOLERANCE, low, high)
    rows = np.flatnonzero((above > TOLERANCE) & (below < -TOLERANCE))
    low, high, above, below, moved = low[rows], high[rows], above[rows], below[rows], np.zeros(len(rows))
    for _ in range(STEPS):
        middle = low + (high - low) * above / (above - below)
        rest = _smoothed(spectrum[rows], middle) - middle
        found[rows] = middle
        up = rest > 0
        # a limit that stays twice is given less weight, or the other one would creep
        scale = 1 - rest / np.where(up, above, below)
        scale = np.where(moved == np.where(up, 1, -1), np.where(scale > 0, scale, 0.5), 1.0)
        low, high = np.where(up, middle, low), np.where(up, high, middle)
        above, below = np.where(up, rest, above * scale), np.where(up, below * scale, rest)
        going = np.abs(rest) > TOLERANCE
        if not going.any():
            break
        rows, moved = rows[going], np.where(up, 1, -1)[going]
        low, high, above, below = low[going], high[going], above[going], below[going]
    # below what the cosines resolve, they may overshoot the sum of the residuals, which smoothing cannot
    return np.minimum(found, np.abs(nodes).sum(axis=1))


def _spectrum(nodes: Floats) -> Floats:
    """Cosine coefficients (R, POINTS) of residuals on the nodes, without what dividing them between nodes blurred.

    A reflected Gaussian multiplies coefficient k by exp(-(pi k s)^2 / 2): in cosines, smoothing is a product.
    """
    wave = np.arange(POINTS)
    return fft.dct(nodes, type=2, axis=1)[:, :POINTS] / 2 / np.sinc(wave / (2 * NODES)) ** 2


def _smoothed(spectrum: Floats, bandwidth: Floats) -> Floats:
    damped = spectrum * np.exp(-0.5 * (np.pi * np.arange(POINTS) * bandwidth[:, None]) ** 2)
    return np.abs(fft.dct(damped, type=3, axis=1)).mean(axis=1)
