"""Calibration errors over soft bins, with analytic gradients."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
#: keeps weights and bin means finite far from all samples; value of the public loss of the authors' group
EPSILON = 1e-6


def _assign(confidence: Array, n_bins: int, sigma: float) -> tuple[Array, Array, Array]:
    """Return bin centres ``(B,)``, kernels ``(B, N)`` and the factors ``(N,)`` that normalise them."""
    centres = (np.arange(n_bins) + 0.5) / n_bins
    kernel = confidence - centres[:, None]
    np.square(kernel, out=kernel)
    kernel *= -0.5 / sigma**2
    np.exp(kernel, out=kernel)
    # normalise vectors of length N instead of the (B, N) matrix
    return centres, kernel, 1.0 / (kernel.sum(axis=0) + EPSILON)


@dataclass(frozen=True)
class SoftBinning:
    """Charbonnier SoftECE over Gaussian soft bins (Guo et al., SMART, arXiv 2506.23492, Sec. 3.4).

    With bin centres ``c_b = (b - 1/2) / B``, confidences p and correctness a::

        w_ib = exp(-(p_i - c_b)^2 / (2 sigma^2)), each row divided by its sum + 1e-6
        W_b  = sum_i w_ib
        r_b  = sum_i w_ib (p_i - a_i) / (W_b + 1e-6)
        loss = sum_b W_b / N (sqrt(r_b^2 + delta^2) - delta)

    With delta 0 the loss is SoftECE, ``sum_b W_b / N |r_b|``.

    Attributes
    ----------
    sigma : width of a soft bin, in units of confidence.
    delta : half-width of the smooth part of the Charbonnier penalty, or 0.
    n_bins : B.
    """

    sigma: float = 0.05
    delta: float = 1e-3
    n_bins: int = 15

    def __call__(self, confidence: Array, correct: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d confidence ``(N,)``.

        Parameters
        ----------
        confidence : ``(N,)`` p in [0, 1].
        correct : ``(N,)`` a, 1.0 where the prediction is right, else 0.0.
        """
        centres, kernel, scale = _assign(confidence, self.n_bins, self.sigma)
        residual = confidence - correct
        mass, total = kernel @ scale, kernel @ (residual * scale)
        loss, d_mass, d_total = self._penalty(mass, total, len(confidence))

        # dw_b/dp = w_b ((c_b - p) - sum_j w_j (c_j - p)) / sigma^2: every sum over bins is one of these six
        columns = np.stack([np.ones_like(d_mass), d_mass, d_total])
        sums = np.concatenate([columns, columns * centres]) @ kernel
        sums *= scale
        weight, by_mass, by_total, centre, mass_centre, total_centre = sums
        pull = mass_centre - confidence * by_mass + residual * (total_centre - confidence * by_total)
        drift = centre - confidence * weight
        return loss, by_total + (pull - drift * (by_mass + residual * by_total)) / self.sigma**2

    def _penalty(self, mass: Array, total: Array, n_samples: int) -> tuple[float, Array, Array]:
        """Return the loss and its derivatives in W_b ``(B,)`` and in the residual sums S_b ``(B,)``."""
        mean = total / (mass + EPSILON)
        root = np.sqrt(mean**2 + self.delta**2)
        # |r| is not differentiable at 0: use 0, as for any other delta
        penalty, slope = root - self.delta, np.divide(mean, root, out=np.zeros_like(mean), where=root > 0.0)
        share = mass / (mass + EPSILON)
        loss = float(mass @ penalty) / n_samples
        return loss, (penalty - slope * mean * share) / n_samples, slope * share / n_samples


@dataclass(frozen=True)
class PointwiseBinning:
    """The objective of Guo et al., SMART, as printed in Eq. 6: each sample is penalised separately.

    With the centres and weights of :class:`SoftBinning`::

        loss = 1/N sum_i sum_b w_ib sqrt((a_i - c_b)^2 + delta^2)

    Without an average before the penalty, the loss is close to the absolute loss ``|a - p|``, whose minimum is at
    confidence 1 if the accuracy exceeds one half. It bounds the smooth calibration error but does not calibrate.

    Attributes
    ----------
    sigma, delta, n_bins : as in :class:`SoftBinning`.
    """

    sigma: float = 0.05
    delta: float = 1e-3
    n_bins: int = 15

    def __call__(self, confidence: Array, correct: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d confidence ``(N,)``; arguments as in :class:`SoftBinning`."""
        centres, kernel, scale = _assign(confidence, self.n_bins, self.sigma)
        wrong, right = np.hypot(centres, self.delta), np.hypot(1.0 - centres, self.delta)
        columns = np.stack([np.ones_like(centres), wrong, right - wrong])
        sums = np.concatenate([columns, columns * centres]) @ kernel
        sums *= scale
        weight, if_wrong, change, centre, if_wrong_centre, change_centre = sums
        penalty = if_wrong + correct * change
        pull = if_wrong_centre + correct * change_centre - confidence * penalty
        slope = (pull - (centre - confidence * weight) * penalty) / self.sigma**2
        return float(penalty.mean()), slope / len(confidence)
