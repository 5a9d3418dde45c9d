"""Equal-width bins of the confidence, and classwise of all probabilities, and their errors, for one
sample or many resamples (rows).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calgrid.metrics._inputs import Floats, Places, Predictions, check_bins, computed_once

#: of values of bins, not of samples; the last bit of SciPy's function differs from math.erf
_erf = np.vectorize(math.erf, otypes=[np.float64])


@dataclass(frozen=True)
class BinSums:
    """Sums over the samples of a bin, float64 (..., M): count, confidence, correct predictions."""

    count: Floats
    confidence: Floats
    correct: Floats

    @cached_property
    def gap(self) -> Floats:
        """Sum of confidence minus correct, (..., M): positive if the model is overconfident."""
        return self.confidence - self.correct

    @cached_property
    def total(self) -> Floats:
        """Number of samples, (...)."""
        return self.count.sum(axis=-1)

    def with_gap(self, gap: Floats) -> "BinSums":
        """The same counts with another gap, (..., M); accuracies of bins are invalid then."""
        return BinSums(self.count, gap, np.zeros(()))

    def noise(self, sample: "BinSums") -> "BinSums":
        """Difference between the sums of the resample and of the sample, at the counts of the
        resample.
        """
        return BinSums(
            self.count, self.confidence - sample.confidence, self.correct - sample.correct
        )


def inner_edges(n_bins: int) -> Floats:
    """The M - 1 edges between M equal bins of [0, 1]; i / M is rounded once, as in a caller's
    value.
    """
    return np.arange(1, check_bins(n_bins)) / n_bins


def bin_index(values: Floats, n_bins: int) -> Places:
    """Bin of each value: bins are (low, high], 0 is in the first and 1 in the last.

    Uses a search among the edges because ``ceil(value * M) - 1`` misplaces values on an edge.
    """
    return np.searchsorted(inner_edges(n_bins), values, side="left")


def bin_borders(ascending: Floats, n_bins: int) -> Places:
    """Number of values of an ascending array before each of the M bins and in all, (M + 1,)."""
    inner = np.searchsorted(ascending, inner_edges(n_bins), side="right")
    return np.concatenate([[0], inner, [len(ascending)]])


def bin_sums(predictions: Predictions, n_bins: int) -> BinSums:
    """Sums of the M equal-width bins of the confidence, each (M,)."""
    index = bin_index(predictions.confidence, n_bins)
    return sums_of(index, n_bins, predictions.confidence, predictions.correct)


def sums_of(index: Places, n_bins: int, confidence: Floats, correct: Floats) -> BinSums:
    """Sums of M bins, each (M,), of samples (N,) in the bins ``index``."""
    weights = (None, confidence, correct)
    return BinSums(*(np.bincount(index, each, n_bins).astype(np.float64) for each in weights))


class ResidualBins(NamedTuple):
    """Residuals e_i = p_i - a_i in equal-width bins, without those in bins of one sample.

    Attributes
    ----------
    place : bin of each sample, (N,). residual : e_i, 0 for the only sample of its bin, (N,).
    others : n_b - 1, at least 1, (M,). sums : sum of e_i, (M,).
    square : mean product of two different residuals, times n_b / N, (M,); NaN if no bin has two
        samples.
    """

    place: Places
    residual: Floats
    others: Floats
    sums: Floats
    square: Floats


def residual_bins(predictions: Predictions, n_bins: int) -> ResidualBins:
    """Residuals of the M equal-width bins of the confidence."""
    index = bin_index(predictions.confidence, n_bins)
    count = np.bincount(index, minlength=n_bins).astype(np.float64)
    residual = (predictions.confidence - predictions.correct) * (count[index] > 1)
    others = np.maximum(count - 1, 1)
    sums = np.bincount(index, residual, n_bins).astype(np.float64)
    products = sums**2 - np.bincount(index, residual**2, n_bins)
    if count.max() < 2:
        products = np.full(n_bins, np.nan)
    return ResidualBins(index, residual, others, sums, products / others / predictions.n_samples)


def mean_gap(sums: BinSums) -> Floats:
    """Sample-weighted mean of |confidence - accuracy| over bins, (...)."""
    return np.abs(sums.gap).sum(axis=-1) / sums.total


def mean_over(sums: BinSums) -> Floats:
    """Part of :func:`mean_gap` from overconfident bins, (...)."""
    return sums.gap.clip(min=0).sum(axis=-1) / sums.total


def mean_under(sums: BinSums) -> Floats:
    """Part of :func:`mean_gap` from underconfident bins, (...)."""
    return (-sums.gap).clip(min=0).sum(axis=-1) / sums.total


def largest_gap(sums: BinSums) -> Floats:
    """Largest |confidence - accuracy| of a non-empty bin, (...)."""
    return np.abs(sums.gap / np.maximum(sums.count, 1)).max(axis=-1)


def rms_gap(sums: BinSums) -> Floats:
    """Sample-weighted root mean square of confidence - accuracy over bins, (...)."""
    return np.sqrt((sums.gap**2 / np.maximum(sums.count, 1)).sum(axis=-1) / sums.total)


#: errors of equal-width bins and their functions of the sums
BINNED: dict[str, Callable[[BinSums], Floats]] = {
    "ece": mean_gap,
    "mce": largest_gap,
    "rmsce": rms_gap,
    "o_ece": mean_over,
    "u_ece": mean_under,
}


def debiased_square(sums: BinSums) -> Floats:
    """:func:`rms_gap` squared, minus its expected excess from the variance of bin accuracies; may
    be negative, (...).

    Bins with fewer than two samples, whose variance is unknown, are ignored.
    """
    count = np.maximum(sums.count, 1)
    accuracy = sums.correct / count
    excess = accuracy * (1 - accuracy) / np.maximum(sums.count - 1, 1)
    square = (sums.gap / count) ** 2
    per_bin = np.where(sums.count > 1, sums.count * (square - excess), 0.0)
    return per_bin.sum(axis=-1) / sums.total


def debiased_rms(sums: BinSums) -> Floats:
    """Root of :func:`debiased_square`, (...): 0 if negative, NaN if no bin has two samples."""
    root = np.sqrt(debiased_square(sums).clip(min=0))
    return np.where(sums.count.max(axis=-1) > 1, root, np.nan)


def debiased_gap(sums: BinSums) -> Floats:
    """:func:`mean_gap` minus its expected excess when bin accuracies are redrawn from normal
    distributions, (...).

    The expectation uses the exact mean of |X| for X ~ N(m, s^2), without simulation.
    """
    count = np.maximum(sums.count, 1)
    gap, accuracy = sums.gap / count, sums.correct / count
    spread = np.sqrt(accuracy * (1 - accuracy) / count)
    ratio = np.divide(gap, spread, out=np.zeros_like(gap), where=spread > 0)
    density = spread * math.sqrt(2 / math.pi) * np.exp(-0.5 * ratio**2)
    mean_absolute = density + gap * _erf(ratio / math.sqrt(2))
    resampled = np.where(spread > 0, mean_absolute, np.abs(gap))
    excess = (sums.count * (resampled - np.abs(gap))).sum(axis=-1) / sums.total
    return mean_gap(sums) - excess


# classwise bins
# --------------------------------------------------------------------------------------------------


class ClasswiseBins:
    """The M equal-width bins of p_ik for each class k, with 1[y_i = k] in place of "correct".

    A row of probabilities sums to 1, so fewer than M of its entries are above the first bin for any
    K. Only these are stored; the first bin is the total of the class, one dense product, minus
    them.

    Parameters
    ----------
    predictions : of N samples and K classes. n_bins : M.
    """

    def __init__(self, predictions: Predictions, n_bins: int) -> None:
        self._predictions, self._probs = predictions, predictions.probs
        self._single = predictions.probs.astype(np.float32)
        self._n_bins = check_bins(n_bins)
        n, k = self._probs.shape
        sample, cell, p = _above_first(predictions, n_bins)
        label_cell = predictions.labels * n_bins + bin_index(predictions.label_probs, n_bins)

        def cells(value: Floats, row: Places, where: Places) -> sparse.csr_array:
            return sparse.csr_array((value, (row, where)), shape=(k * n_bins, n))

        self._above = cells(np.ones(len(p)), cell, sample)
        self._p_above = cells(p, cell, sample)
        self._labels = cells(np.ones(n), label_cell, np.arange(n))
        # one product for all sums, because each reads the weights
        self._all = sparse.vstack([self._above, self._p_above, self._labels], format="csr")

    def totals(self, weights: Floats) -> NDArray[np.float32]:
        """Sum of the probabilities of each class in resamples with ``weights`` (R, N), (R, K).

        In single precision, exact to seven digits. Each product reads all probabilities, so it is
        fastest for many resamples.
        """
        return weights.astype(np.float32) @ self._single

    def sums(self, weights: Floats, totals: NDArray[np.float32]) -> BinSums:
        """Sums of each class and bin in resamples with ``weights`` (R, N) that sum to N in each
        row, each (K, R, M).
        """
        n, k = self._probs.shape
        per_cell = (self._all @ weights.T).reshape(3, k, self._n_bins, len(weights))
        count, confidence, correct = per_cell.swapaxes(2, 3)
        count[:, :, 0] += n - count.sum(axis=2)
        confidence[:, :, 0] += totals.T - confidence.sum(axis=2)
        return BinSums(count, confidence, correct)

    def squares(self) -> Floats:
        """Sums of (p - y)^2 in each class and bin of the sample, (K, M)."""
        sums = classwise_sums(self._predictions, self._n_bins)
        square = np.asarray(self._p_above.power(2).sum(axis=1)).reshape(-1, self._n_bins)
        square[:, 0] += np.einsum("nk,nk->k", self._probs, self._probs) - square.sum(axis=1)
        of_labels = (self._labels @ self._predictions.label_probs).reshape(square.shape)
        # rounding errors of the first bin
        return (square - 2 * of_labels + sums.correct).clip(min=0)


@computed_once
def classwise_sums(predictions: Predictions, n_bins: int) -> BinSums:
    """Sums of each class and bin of the sample itself, each (K, M)."""
    n, k = predictions.probs.shape
    n_bins = check_bins(n_bins)
    _, cell, p = _above_first(predictions, n_bins)

    def per_cell(cells: Places, values: Floats | None = None) -> Floats:
        sums = np.bincount(cells, values, minlength=k * n_bins)
        return sums.reshape(k, n_bins).astype(np.float64)

    count, confidence = per_cell(cell), per_cell(cell, p)
    count[:, 0] += n - count.sum(axis=1)
    confidence[:, 0] += predictions.probs.sum(axis=0) - confidence.sum(axis=1)
    return BinSums(
        count,
        confidence,
        per_cell(predictions.labels * n_bins + bin_index(predictions.label_probs, n_bins)),
    )


def _above_first(predictions: Predictions, n_bins: int) -> tuple[Places, Places, Floats]:
    """Sample, cell and value of the probabilities above the first bin, each (Q,)."""
    flat = predictions.probs.ravel()
    place = np.flatnonzero(flat > 1 / n_bins)
    sample, column = np.divmod(place, predictions.probs.shape[1])
    p = flat[place]
    return sample, column * n_bins + bin_index(p, n_bins), p
