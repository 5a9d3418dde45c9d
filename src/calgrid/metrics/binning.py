"""Equal-width confidence bins and their errors, for one sample or many resamples (rows)."""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from calgrid.metrics._inputs import Floats, Places, Predictions, check_bins

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
