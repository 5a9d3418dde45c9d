"""Calibration errors over confidence bins: ECE and its relatives.

All take probabilities (N, K) and labels (N,), compute in float64 and return a fraction, not
percent. p_i is the confidence (largest probability) of sample i; a_i is 1 if its arg max is
correct. The M = ``n_bins`` equal-width bins are (low, high]; a confidence of 0 is in the first bin.
"""

import math
from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from calgrid.errors import ConfigError
from calgrid.metrics import _weighted, binning
from calgrid.metrics._inputs import (
    Floats,
    Predictions,
    Probabilities,
    check_bins,
    check_probabilities,
    computed_once,
)
from calgrid.metrics._weighted import Ranks, adaptive_positions, cumulative


def ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Expected calibration error, ``sum_b (n_b / N) |conf_b - acc_b| = sum_b |sum_{i in b} (p_i
    - a_i)| / N``.

    Biased upwards by finite bins: see :func:`ece_debiased` and :func:`ece_null`.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : number of bins, M.

    Raises
    ------
    DataError : invalid probabilities or labels, see :func:`calgrid.metrics.check_probabilities`.
    ConfigError : ``n_bins`` is not an integer of at least 1.

    Source: Naeini et al., AAAI 2015; Guo et al., ICML 2017, equation 3.

    Examples
    --------
    >>> ece([[0.9, 0.1], [0.4, 0.6]], [0, 0], n_bins=5)
    0.35
    """
    return _of_bins(binning.mean_gap, probs, labels, n_bins)


def o_ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Overconfidence part of the ECE, ``sum_b (n_b / N) max(conf_b - acc_b, 0)``; o_ece + u_ece =
    ece.

    Parameters and errors as in :func:`ece`. Source: FeDLaS, Table 4 (no formula printed; its
    columns sum to its ECE).
    """
    return _of_bins(binning.mean_over, probs, labels, n_bins)


def u_ece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Underconfidence part of the ECE, ``sum_b (n_b / N) max(acc_b - conf_b, 0)``; o_ece - u_ece =
    mean p - accuracy.

    Parameters, errors and source as in :func:`o_ece`.
    """
    return _of_bins(binning.mean_under, probs, labels, n_bins)


def mce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Maximum calibration error, max_b |conf_b - acc_b| over non-empty bins; dominated by small
    bins.

    Parameters and errors as in :func:`ece`. Source: Naeini et al., AAAI 2015.
    """
    return _of_bins(binning.largest_gap, probs, labels, n_bins)


def rmsce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Root mean square calibration error, ``sqrt(sum_b (n_b / N) (conf_b - acc_b)^2)``.

    Parameters and errors as in :func:`ece`. Source: Hendrycks, Mazeika and Dietterich, ICLR 2019
    (equal-width bins here, for the same bins as :func:`ece`).
    """
    return _of_bins(binning.rms_gap, probs, labels, n_bins)


def rmsce_debiased(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Debiased :func:`rmsce`: root of ``sum_b (n_b / N) [(conf_b - acc_b)^2 - acc_b (1 - acc_b)
    / (n_b - 1)]``.

    0 if the sum is negative; bins of one sample are ignored, and without others it is NaN. Same
    equal-width bins as :func:`rmsce` (the paper's code uses equal-mass bins).

    Parameters and errors as in :func:`ece`. Source: Kumar, Liang and Ma, NeurIPS 2019, definition
    5.1.
    """
    return _of_bins(binning.debiased_rms, probs, labels, n_bins)


def squared_ce(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Squared top-label calibration error without bias: ``sum_b [(sum e_i)^2 - sum e_i^2] / ((n_b
    - 1) N), e_i = p_i - a_i``.

    Dropping the products of a sample with itself makes each bin an unbiased estimate (a
    U-statistic) of n_b times its squared gap, so two models differ in expectation only if their
    calibration does. May be negative; bins of one sample are ignored, and without others it is NaN.
    Same equal-width bins as :func:`ece`.

    Parameters and errors as in :func:`ece`. Source: Lee, Huang, Hassani and Dobriban, T-Cal, JMLR
    2023 (debiased plug-in estimator; there of all classes, and divided by n_b instead of n_b - 1).
    """
    bins = binning.residual_bins(check_probabilities(probs, labels), n_bins)
    return float(bins.square.sum())


def ece_debiased(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """ECE minus its estimated bias: 2 ECE - E[ECE], with bin accuracies drawn from ``N(acc_b, acc_b
    (1 - acc_b) / n_b)`` in the expectation.

    The expectation is exact, without random seed. Same equal-width bins as :func:`ece` (the paper's
    code uses equal-mass bins). Never above the ECE; may be negative, and is not clipped at 0
    because that would bias its mean over seeds. It removes the bias to first order if a bin is
    miscalibrated, and sqrt(2) - 1 = 41 % of it if the bin is perfectly calibrated.

    Parameters and errors as in :func:`ece`. Source: Kumar, Liang and Ma, NeurIPS 2019, section 5
    (L1 form of the code).
    """
    return _of_bins(binning.debiased_gap, probs, labels, n_bins)


def aece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Adaptive ECE as in focal_calibration, for comparison with published tables: :func:`ece` with
    bins of nearly equal numbers of samples.

    The edges are interpolated between sorted confidences, and bins are (low, high]: the lowest
    confidence with its ties is in no bin (:func:`aece_left_out`), and ties merge bins. So it is 0
    for a constant confidence. :func:`aece_eq` has neither effect.

    Parameters and errors as in :func:`ece`. Source: code of Mukhoti et al., NeurIPS 2020, which the
    published tables use.
    """
    return _of_order(check_probabilities(probs, labels), n_bins)["aece"]


def aece_left_out(probs: Probabilities, labels: ArrayLike) -> int:
    """Number of samples of the lowest confidence, which :func:`aece` leaves out. Parameters and
    errors as in :func:`ece`.
    """
    confidence = check_probabilities(probs, labels).confidence
    return int(np.count_nonzero(confidence == confidence.min()))


def aece_eq(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Adaptive ECE of all samples: sorted by confidence, in M runs whose lengths differ by at most
    one.

    Where a run ends among equal confidences, each of these has their mean accuracy. Parameters and
    errors as in :func:`ece`. Source: Nixon et al., CVPR workshops 2019.
    """
    return _of_order(check_probabilities(probs, labels), n_bins)["aece_eq"]


def ece_sweep(
    probs: Probabilities, labels: ArrayLike, n_bins: int = 15, *, norm: Literal[1, 2] = 1
) -> float:
    """ECE with the largest number of equal-mass bins with non-decreasing accuracies.

    Sample i of N in the stable order of confidence is in bin floor(i b / N); b = 1, 2, ... is
    increased until a bin is less accurate than the previous one, and the last b before that is
    used.

    Errors as in :func:`ece`. Source: Roelofs et al., AISTATS 2022, algorithm 1.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.
    norm : 1 for the mean |conf_b - acc_b| over samples, 2 for the root of the mean square (the
        paper's choice).

    Raises
    ------
    ConfigError : another norm.
    """
    if norm not in (1, 2):
        raise ConfigError(f"norm must be 1 or 2, got {norm!r}.")
    predictions = check_probabilities(probs, labels)
    weights = np.ones((1, predictions.n_samples))
    right, residual = (
        _weighted.Carried(values, weights, 0, cumulative(weights * values))
        for values in (predictions.correct[predictions.order], _sorted_residual(predictions))
    )
    (errors,) = _weighted.sweep(right, Ranks(cumulative(weights)), (residual,), norm)
    return float(errors[0])


def ks(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Kolmogorov-Smirnov calibration error, ``max_t |sum_{i: p_i <= t} (p_i - a_i)| / N``; no bins.

    t runs over distinct confidences, so that the order of ties does not matter.

    Errors as in :func:`ece`. Source: Gupta et al., ICLR 2021, equation 6.

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : unused, for one signature over
        all metrics.
    """
    return _of_order(check_probabilities(probs, labels), n_bins)["ks"]


def cece(probs: Probabilities, labels: ArrayLike, n_bins: int = 15) -> float:
    """Classwise ECE: mean over all K classes of the ECE of ``(p_ik, 1[y_i = k])``, all N samples,
    equal-width bins.

    Parameters and errors as in :func:`ece`. Source: Kull et al., NeurIPS 2019, with the true K
    rather than max(y) + 1.
    """
    sums = binning.classwise_sums(check_probabilities(probs, labels), n_bins)
    errors = binning.mean_gap(sums)
    return math.fsum(errors) / len(errors)


def _of_bins(
    error: Callable[[binning.BinSums], Floats],
    probs: Probabilities,
    labels: ArrayLike,
    n_bins: int,
) -> float:
    """Error of the sums of equal-width bins."""
    return float(error(binning.bin_sums(check_probabilities(probs, labels), n_bins)))


@computed_once
def _of_order(predictions: Predictions, n_bins: int) -> dict[str, float]:
    """Errors of :func:`calgrid.metrics._weighted.errors` by metric."""
    gaps = cumulative(_sorted_residual(predictions)[None])
    ranks = Ranks(np.arange(predictions.n_samples + 1.0)[None])
    edges = adaptive_positions(predictions.confidence[predictions.order], ranks, check_bins(n_bins))
    errors = _weighted.errors(gaps, gaps[:, edges[0]], ranks, n_bins, predictions.tie_ends)
    return {name: float(error[0]) for name, error in errors.items()}


def _sorted_residual(predictions: Predictions) -> Floats:
    """Confidence minus correct of each sample, (N,), in ascending order of confidence."""
    return (predictions.confidence - predictions.correct)[predictions.order]
