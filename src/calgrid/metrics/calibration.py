"""Calibration errors over confidence bins: ECE and its relatives.

All take probabilities (N, K) and labels (N,), work in float64 and return a fraction, not percent. p_i is the confidence
(largest probability) of sample i and a_i is 1 where its arg max is right. The M = ``n_bins`` equal-width bins are
(low, high]; a confidence of 0 is in the first and 1 in the last.
"""

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import ConfigError
from calgrid.metrics import _binning
from calgrid.metrics._inputs import Predictions, Probabilities, check_bins, check_probabilities
from calgrid.metrics._weighted import adaptive_gaps

#: entries of a block of classes in the classwise error: bounds its memory whatever N and K
BLOCK_ENTRIES = 2**20


def ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Expected calibration error, sum_b (n_b / N) |conf_b - acc_b| = sum_b |sum_{i in b} (p_i - a_i)| / N.

    Biased upwards by finite bins: see :func:`ece_debiased` and :func:`ece_null`.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : number of bins, M.

    Raises
    ------
    DataError : for anything but probabilities and labels, see :func:`calgrid.metrics.check_probabilities`.
    ConfigError : if ``n_bins`` is not an integer of at least 1.

    Source: Naeini et al., AAAI 2015; Guo et al., ICML 2017, equation 3.

    Examples
    --------
    >>> ece([[0.9, 0.1], [0.4, 0.6]], [0, 0], n_bins=5)
    0.35
    """
    return float(_binning.mean_gap(_binning.bin_sums(check_probabilities(probs, labels), n_bins)))


def o_ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Over-confidence part of the ECE, sum_b (n_b / N) max(conf_b - acc_b, 0); o_ece + u_ece = ece.

    Parameters and errors as in :func:`ece`. Source: FeDLaS, Table 4 (no formula printed; its columns sum to its ECE).
    """
    return float(_binning.mean_over(_binning.bin_sums(check_probabilities(probs, labels), n_bins)))


def u_ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Under-confidence part of the ECE, sum_b (n_b / N) max(acc_b - conf_b, 0); o_ece - u_ece = mean p - accuracy.

    Parameters, errors and source as in :func:`o_ece`.
    """
    return float(_binning.mean_under(_binning.bin_sums(check_probabilities(probs, labels), n_bins)))


def mce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Maximum calibration error, max_b |conf_b - acc_b| over bins that are not empty; dominated by tiny bins.

    Parameters and errors as in :func:`ece`. Source: Naeini et al., AAAI 2015.
    """
    return float(_binning.largest_gap(_binning.bin_sums(check_probabilities(probs, labels), n_bins)))


def ece_debiased(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """ECE minus its estimated bias: 2 ECE - E[ECE with bin accuracies ~ N(acc_b, acc_b (1 - acc_b) / n_b)].

    The expectation over the normal law is exact, so there is no random seed. Same equal-width bins as :func:`ece`,
    for a correction of that very number (the paper's code bins by equal mass). Never above the ECE; may be negative,
    and is not cut off at 0 because that would bias its mean over seeds. It removes the bias to first order where a bin
    is miscalibrated, and sqrt(2) - 1 = 41 % of it where the bin is perfectly calibrated.

    Parameters and errors as in :func:`ece`. Source: Kumar, Liang and Ma, NeurIPS 2019, section 5 (L1 form of the code).
    """
    return float(_binning.debiased_gap(_binning.bin_sums(check_probabilities(probs, labels), n_bins)))


def aece(
    probs: Probabilities,
    labels: ArrayLike,
    n_bins: int = 15,
    *,
    form: Literal["focal_calibration", "equal_count"] = "focal_calibration",
) -> float:
    """Adaptive ECE: as :func:`ece`, over bins of equal numbers of samples.

    Parameters
    ----------
    form : ``focal_calibration`` interpolates the edges between sorted confidences and takes (low, high] bins, so that
        the lowest confidence with its ties is in no bin and ties merge bins: the code behind the published tables.
        ``equal_count`` cuts the stably sorted samples into M runs whose lengths differ by at most one.

    Other parameters and errors as in :func:`ece`. Source: Nixon et al., CVPR workshops 2019; code of Mukhoti et al.,
    NeurIPS 2020.
    """
    predictions, n_bins = check_probabilities(probs, labels), check_bins(n_bins)
    confidence, correct = predictions.confidence[predictions.order], predictions.correct[predictions.order]
    if form == "focal_calibration":
        gaps = adaptive_gaps(confidence, correct, np.ones((1, len(confidence))), n_bins)
    elif form == "equal_count":
        gaps = np.array([run.sum() for run in np.array_split(confidence - correct, n_bins)])
    else:
        raise ConfigError(f"form must be 'focal_calibration' or 'equal_count', got {form!r}.")
    return float(np.abs(gaps).sum() / len(confidence))


def cece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Classwise ECE: mean over all K classes of the ECE of (p_ik, 1[y_i = k]), all N samples, equal-width bins.

    Parameters and errors as in :func:`ece`. Source: Kull et al., NeurIPS 2019, with the true K rather than max(y) + 1.
    """
    predictions, n_bins = check_probabilities(probs, labels), check_bins(n_bins)
    n, k = predictions.probs.shape
    width = max(1, BLOCK_ENTRIES // n)
    total = sum(_classwise_gap(predictions, slice(start, start + width), n_bins) for start in range(0, k, width))
    return float(total / (n * k))


def _classwise_gap(predictions: Predictions, classes: slice, n_bins: int) -> float:
    """Sum over a block of classes and their bins of |sum_i (p_ik - 1[y_i = k])|."""
    block = predictions.probs[:, classes]
    k = block.shape[1]
    cell = _binning.bin_index(block, n_bins) + n_bins * np.arange(k)
    predicted = np.bincount(cell.ravel(), block.ravel(), minlength=k * n_bins)
    row, column = _labels_in_block(predictions.labels, classes.start, k)
    return float(np.abs(predicted - np.bincount(cell[row, column], minlength=k * n_bins)).sum())


def _labels_in_block(labels: NDArray[np.int64], start: int, k: int) -> tuple[NDArray[np.intp], NDArray[np.int64]]:
    """Rows whose label is one of the ``k`` classes from ``start``, and that label counted from ``start``."""
    row = np.flatnonzero((labels >= start) & (labels < start + k))
    return row, labels[row] - start
