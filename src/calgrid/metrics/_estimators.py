"""Metrics of many resamples at once: each estimator maps weights to one value a resample.

A resample is a row of weights, how often each sample was drawn. Sums over it are matrix products with columns that do
not depend on the resample, so nothing is ever binned or sorted again.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calgrid.metrics import _binning, _weighted, ood, scoring
from calgrid.metrics._inputs import Predictions

Floats = NDArray[np.float64]
#: weights (R, N) in the order of the samples, each row summing to N -> values (R,) by metric
Estimator = Callable[[Floats], dict[str, Floats]]
#: weights (R, N) and (R, M) of both sets -> values (R,) by metric function
OodEstimator = Callable[[Floats, Floats], dict[Callable[..., float], Floats]]


def labelled_estimators(predictions: Predictions, n_bins: int) -> tuple[Estimator, ...]:
    """Estimators that together give all labelled metrics with an interval."""
    makers = (_means, _binned, _adaptive, _classwise)
    return tuple(make(predictions, n_bins) for make in makers)


def _means(predictions: Predictions, n_bins: int) -> Estimator:
    per_sample = {
        "accuracy": predictions.correct,
        "nll": scoring.nll_per_sample(predictions),
        "brier": scoring.brier_per_sample(predictions),
    }
    columns = np.column_stack(list(per_sample.values())) / predictions.n_samples
    return lambda weights: dict(zip(per_sample, (weights @ columns).T, strict=True))


def _binned(predictions: Predictions, n_bins: int) -> Estimator:
    index = _binning.bin_index(predictions.confidence, n_bins)
    member = (index[:, None] == np.arange(n_bins)).astype(np.float64)
    columns = np.hstack([member, member * predictions.confidence[:, None], member * predictions.correct[:, None]])

    def estimate(weights: Floats) -> dict[str, Floats]:
        sums = _binning.BinSums(*np.split(weights @ columns, 3, axis=1))
        return {
            "ece": _binning.mean_gap(sums),
            "ece_debiased": _binning.debiased_gap(sums),
            "mce": _binning.largest_gap(sums),
            "o_ece": _binning.mean_over(sums),
            "u_ece": _binning.mean_under(sums),
        }

    return estimate


def _adaptive(predictions: Predictions, n_bins: int) -> Estimator:
    order = predictions.order
    confidence, correct = predictions.confidence[order], predictions.correct[order]

    def estimate(weights: Floats) -> dict[str, Floats]:
        gaps = _weighted.adaptive_gaps(confidence, correct, np.take(weights, order, axis=1), n_bins)
        return {"aece": np.abs(gaps).sum(axis=1) / len(order)}

    return estimate


def _classwise(predictions: Predictions, n_bins: int) -> Estimator:
    n, k = predictions.probs.shape
    upper = _classwise_cells(predictions, n_bins)

    def estimate(weights: Floats) -> dict[str, Floats]:
        gaps = (upper @ weights.T).reshape(k, n_bins, -1)
        gaps[:, 0] += (weights @ predictions.probs).T
        return {"cece": np.abs(gaps).sum(axis=(0, 1)) / (n * k)}

    return estimate


def _classwise_cells(predictions: Predictions, n_bins: int) -> sparse.csr_array:
    """What turns the sums of p_ik over all samples into the gap of each class and bin, sparse (K * M, N).

    A row of probabilities sums to 1, so fewer than M of its entries lie above the first bin, whatever K. Those stand
    in their own cell and are taken off the first one, whose total is one dense product; labels are taken off theirs.
    """
    n, k = predictions.probs.shape
    sample, column = np.nonzero(predictions.probs > 1 / n_bins)
    p = predictions.probs[sample, column]
    label_cell = predictions.labels * n_bins + _binning.bin_index(predictions.label_probs, n_bins)
    cell = np.concatenate([column * n_bins + _binning.bin_index(p, n_bins), column * n_bins, label_cell])
    value = np.concatenate([p, -p, -np.ones(n)])
    where = np.concatenate([sample, sample, np.arange(n)])
    return sparse.csr_array((value, (cell, where)), shape=(k * n_bins, n))


def ood_estimator(scores_id: Floats, scores_ood: Floats) -> OodEstimator:
    """Estimator of the out-of-distribution metrics of one score, from scores (N,) and (M,)."""
    order_id, order_ood = np.argsort(scores_id, kind="stable"), np.argsort(scores_ood, kind="stable")
    positive, negative = scores_id[order_id], scores_ood[order_ood]

    def estimate(weights_id: Floats, weights_ood: Floats) -> dict[Callable[..., float], Floats]:
        weights_id = np.take(weights_id, order_id, axis=1)
        before_id = _weighted.cumulative(weights_id)
        before_ood = _weighted.cumulative(np.take(weights_ood, order_ood, axis=1))
        return {
            ood.auroc: _weighted.auroc(positive, negative, weights_id, before_ood),
            ood.fpr95: _weighted.share_kept(positive, negative, before_id, before_ood),
            ood.fpr95_oodpos: _weighted.share_flagged(positive, negative, before_id, before_ood),
        }

    return estimate
