"""Metrics of many resamples at once: each estimator maps weights to one value per resample.

A resample is a row of weights: how often each sample was drawn. Sums over resamples are matrix
products, and samples are sorted and binned only once.

Calibration errors are absolute values of sums of residuals. Their estimators also return the
possible excess due to noise, from the change of these sums under resampling: see
:mod:`calgrid.metrics.intervals`.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics import (
    _weighted,
    binning,
    classes,
    human,
    kernel,
    ood,
    recalibration,
    scoring,
    smooth,
)
from calgrid.metrics._inputs import Floats, Predictions
from calgrid.metrics.failure import Confidences
from calgrid.metrics.moments import row_blocks
from calgrid.metrics.table import MOST_SLOW, Metric

#: gaps within this many standard deviations are treated as possibly 0: sqrt(ln N), the usual
#: choice, for N = 8,000
NEAR = 3.0
#: fewer samples have products of more than two in the change of ``squared_ce``: that by products of
#: two counts twice (otherwise 18 to 20 % of pairs of equal networks on 100 samples would differ)
FEW_SAMPLES = 500
#: entries of an array with one row per resample that fits into a processor cache
BLOCK_ENTRIES = 2**18
#: fewest rows of such an array, as each block has calls of many functions
MIN_ROWS = 16


class Draws(NamedTuple):
    """Values (R,) of each metric in each resample, and for errors the excess (R,) due to noise."""

    values: dict[str, Floats]
    noise: dict[str, Floats]


def joined(blocks: Sequence[Draws]) -> Draws:
    """Draws of all blocks of resamples, in their order."""
    draws = Draws({}, {})
    for of_kind, parts in zip(draws, zip(*blocks, strict=True), strict=True):
        for name in dict.fromkeys(itertools.chain(*parts)):
            of_kind[name] = np.concatenate([part[name] for part in parts if name in part])
    return draws


#: weights (R, N) in the order of the samples, each row summing to N -> draws
Estimator = Callable[[Floats], Draws]
#: weights (R, N) and (R, M) of both sets -> values (R,) by metric function
OodEstimator = Callable[[Floats, Floats], dict[Callable[..., float], Floats]]


def rows_of_block(width: int) -> int:
    """Number of resamples of a block whose widest array has ``width`` entries per resample."""
    return max(MIN_ROWS, BLOCK_ENTRIES // width)


def _in_blocks(estimate: Estimator, width: int) -> Estimator:
    """The estimator for one block of resamples after the other."""
    rows = rows_of_block(width)

    def of_all(weights: Floats) -> Draws:
        starts = range(0, len(weights), rows)
        return joined([estimate(weights[start : start + rows]) for start in starts])

    return of_all


def deciding_estimators(predictions: Predictions, n_bins: int) -> tuple[Estimator, ...]:
    """Estimators of the means over samples, of ``squared_ce`` and of the parts of the NLL, which
    are fast.
    """
    fast = _means(predictions, n_bins), _squared(predictions, n_bins)
    if predictions.probs.size > MOST_SLOW:
        return fast
    return (*fast, _nll_parts(predictions, n_bins))


def labelled_estimators(predictions: Predictions, n_bins: int) -> tuple[Estimator, ...]:
    """Estimators of all labelled metrics with an interval, except the smooth calibration error."""
    found = [*deciding_estimators(predictions, n_bins)]
    found += [make(predictions, n_bins) for make in (_sorted, _kernel, _classwise)]
    if predictions.probs.size <= MOST_SLOW:
        # L_p errors with the maps of the sample, and the macro AUROC to first order
        errors = {}
        for by in recalibration.MAPS:
            for p, each in recalibration.directed(predictions, by).items():
                errors[f"l{p}_{by}"] = each
        mean = classes.auroc_per_sample(predictions) / predictions.n_samples
        found += [_of_columns(errors), lambda weights: Draws({"macro_auroc": weights @ mean}, {})]
    return tuple(found)


def smooth_estimator(predictions: Predictions) -> Estimator:
    """Estimator of the smooth calibration error: slow, one linear programme per resample.

    Exact for up to smooth.CELLS distinct confidences; with more, w is constant on smooth.CELLS
    cells of [0, 1], which changes the value by at most half the width of a cell times the mean |a_i
    - p_i|.
    """
    positions, cell = smooth.cells_of(predictions.confidence)
    residual = (predictions.correct - predictions.confidence) / predictions.n_samples

    def errors(weights: Floats) -> Floats:
        sums = [np.bincount(cell, row * residual, minlength=len(positions)) for row in weights]
        return smooth.optimum(positions, np.array(sums))

    # half of the resamples are enough for a quantile of the noise
    return lambda weights: Draws({"smce": errors(weights)}, {"smce": errors(weights[::2] - 1)})


def function_estimator(
    predictions: Predictions, metrics: Sequence[Metric], n_bins: int
) -> Estimator:
    """Estimator of any metrics: slow, one call of each function per resample."""
    rows = np.arange(predictions.n_samples)

    def of_resample(weights: Floats) -> list[float]:
        drawn = np.repeat(rows, weights.astype(np.int64))
        resample = predictions.rows(drawn)
        return [metric.function(resample, resample.labels, n_bins) for metric in metrics]

    def estimate(weights: Floats) -> Draws:
        values = np.array([of_resample(row) for row in weights]).T
        return Draws({metric.id: drawn for metric, drawn in zip(metrics, values, strict=True)}, {})

    return estimate


def _means(predictions: Predictions, n_bins: int) -> Estimator:
    return _of_columns(
        {
            "accuracy": predictions.correct,
            "top5": scoring.top5_per_sample(predictions),
            "nll": scoring.nll_per_sample(predictions),
            "brier": scoring.brier_per_sample(predictions),
            "balanced_accuracy": classes.balanced_per_sample(predictions),
        }
    )


def _of_columns(per_sample: Mapping[str, Floats]) -> Estimator:
    """Estimator of means over samples, from the value (N,) of each sample."""
    columns = np.column_stack(list(per_sample.values()))
    n = len(columns)
    return lambda weights: Draws(dict(zip(per_sample, (weights @ columns).T / n, strict=True)), {})


def _binned(predictions: Predictions, n_bins: int) -> Callable[[binning.BinSums], Draws]:
    """Draws of the errors of equal-width bins, from the sums of resamples, each (R, M)."""
    confidence = predictions.confidence
    index, sample = binning.bin_index(confidence, n_bins), binning.bin_sums(predictions, n_bins)
    seen = np.bincount(index, np.square(confidence - predictions.correct), n_bins)
    centre = _centre(sample.gap, seen.astype(np.float64))
    base = sample.with_gap(centre)

    def estimate(sums: binning.BinSums) -> Draws:
        moved = sums.with_gap(centre + sums.gap - sample.gap)
        values = {name: read(sums) for name, read in binning.BINNED.items()}
        values["ece_debiased"] = binning.debiased_gap(sums)
        values["rmsce_debiased"] = binning.debiased_rms(sums)
        return Draws(
            values, {name: read(moved) - read(base) for name, read in binning.BINNED.items()}
        )

    return estimate


def _squared(predictions: Predictions, n_bins: int) -> Estimator:
    """Estimator of ``squared_ce``: the value plus its change to first order, and as noise its
    change by products of two added samples.
    """
    bins, n = binning.residual_bins(predictions, n_bins), predictions.n_samples
    residual, others = bins.residual, bins.others[bins.place]
    products = 2 * residual * (bins.sums[bins.place] - residual) / n
    # another sample changes the number of products, too
    influence = (products - bins.square[bins.place]) / others
    scaled = residual / np.sqrt(n * others)
    member = (bins.place[:, None] == np.arange(n_bins)) * scaled[:, None]
    columns = np.column_stack([member, influence])
    value = bins.square.sum()

    def estimate(weights: Floats) -> Draws:
        added = weights - 1
        *sums, change = (added @ columns).T
        pairs = np.square(sums).sum(axis=0) - np.square(added) @ scaled**2
        if n < FEW_SAMPLES:
            change += pairs
        return Draws({"squared_ce": value + change}, {"squared_ce": pairs})

    return estimate


def _nll_parts(predictions: Predictions, n_bins: int) -> Estimator:
    """Estimator of the parts of the NLL: values change at a fixed temperature; noise is the change
    by products of two added samples, which move the temperature.
    """
    parts, n = recalibration.nll_parts(predictions), predictions.n_samples
    slope, curvature = parts.slope, parts.curvature
    above = recalibration.loss_above(predictions)
    means = np.column_stack([above, scoring.nll_per_sample(predictions) - parts.loss])
    optimism = np.array([parts.loss.mean() - above.mean() + parts.optimism, -parts.optimism])

    def estimate(weights: Floats) -> Draws:
        refinement, calibration = (weights @ means / n + optimism).T
        added = weights - 1
        pairs = (np.square(added @ slope) - np.square(added) @ slope**2) / (2 * curvature * n**2)
        return Draws(
            {"nll_refinement": refinement, "nll_calibration": calibration},
            {"nll_refinement": -pairs, "nll_calibration": pairs},
        )

    return estimate


def _centre(gap: Floats, seen: Floats) -> Floats:
    """Gaps of bins, with insignificant ones set to 0; ``seen`` are the sums of squared residuals
    that resampling uses, both with the same shape.
    """
    return np.where(np.abs(gap) <= NEAR * np.sqrt(seen), 0.0, gap)


def _sorted(predictions: Predictions, n_bins: int) -> Estimator:
    """Estimator of the errors of equal-width and equal-mass bins and of failure prediction, all
    from cumulative sums in ascending order of confidence.
    """
    order, ends, n = predictions.order, predictions.tie_ends, predictions.n_samples
    confidence, correct = predictions.confidence[order], predictions.correct[order]
    residual = confidence - correct
    borders = binning.bin_borders(confidence, n_bins)
    binned = _binned(predictions, n_bins)

    def estimate(weights: Floats) -> Draws:
        draws = np.take(weights, order, axis=1).astype(np.int64)
        ranks = _weighted.Ranks(_weighted.cumulative_draws(draws))
        drawn_correct, drawn = (
            _weighted.Carried(values, draws, 0, _weighted.cumulative_draws(draws, values))
            for values in (correct, residual)
        )
        carried = drawn, _weighted.noise(drawn)
        count, right, gap = (
            np.diff(sums[:, borders], axis=1)
            for sums in (ranks.before, drawn_correct.cumulated, drawn.cumulated)
        )
        of_bins = binned(binning.BinSums(count, gap + right, right))
        edges = _weighted.adaptive_positions(confidence, ranks, n_bins)
        swept_errors = _weighted.sweep(drawn_correct, ranks, carried, norm=1)
        values, noise = (
            _weighted.errors(
                one.cumulated,
                np.take_along_axis(one.cumulated, edges, axis=1),
                ranks,
                n_bins,
                ends,
            )
            | {"ece_sweep": swept}
            for one, swept in zip(carried, swept_errors, strict=True)
        )
        failure = Confidences(ends, correct, ranks.before, drawn_correct.cumulated)
        separation = {
            "aurc": failure.aurc(),
            "auroc_failure": failure.auroc(),
            "aupr_failure": failure.aupr(),
            "fpr95_failure": failure.fpr95(),
        }
        return Draws(of_bins.values | values | separation, of_bins.noise | noise)

    return _in_blocks(estimate, n)


def _classwise(predictions: Predictions, n_bins: int) -> Estimator:
    """Estimator of the classwise error and the parts of the Brier score."""
    bins = binning.ClasswiseBins(predictions, n_bins)
    plain = binning.classwise_sums(predictions, n_bins)
    sample = binning.BinSums(
        plain.count[:, None], plain.confidence[:, None], plain.correct[:, None]
    )
    centre = _centre(sample.gap, bins.squares()[:, None])
    base = binning.mean_gap(sample.with_gap(centre)).mean(axis=0)
    brier = scoring.brier_per_sample(predictions) / predictions.n_samples

    def of_block(weights: Floats, totals: NDArray[np.float32]) -> Draws:
        sums = bins.sums(weights, totals)
        calibration = binning.debiased_square(sums).sum(axis=0)
        values = {
            "cece": binning.mean_gap(sums).mean(axis=0),
            "brier_calibration": calibration,
            "brier_refinement": weights @ brier - calibration,
        }
        moved = sums.with_gap(centre + sums.gap - sample.gap)
        return Draws(values, {"cece": binning.mean_gap(moved).mean(axis=0) - base})

    def estimate(weights: Floats) -> Draws:
        totals = bins.totals(weights)
        parts = row_blocks(len(weights), centre.size, BLOCK_ENTRIES)
        return joined([of_block(weights[part], totals[part]) for part in parts])

    return estimate


def _kernel(predictions: Predictions, n_bins: int) -> Estimator:
    residual = (predictions.confidence - predictions.correct) / predictions.n_samples
    shares = kernel.node_shares(predictions.confidence).multiply(residual[:, None])
    by_node = shares.T.tocsr()
    sample = by_node.sum(axis=1)

    def estimate(weights: Floats) -> Draws:
        nodes = (by_node @ weights.T).T
        # half of the resamples are enough for a quantile of the noise
        added = nodes[::2] - sample
        return Draws({"smece": kernel.fixed_points(nodes)}, {"smece": kernel.fixed_points(added)})

    return _in_blocks(estimate, max(len(residual), kernel.NODES))


def soft_estimator(probs: ArrayLike, distribution: ArrayLike, n_bins: int) -> Estimator:
    """Estimator of the soft metrics, from probabilities (N, K) and the distribution (N, K) of the
    classes.
    """
    checked = human.check_votes(probs, distribution)
    columns = human.bin_columns(*checked, n_bins)
    per_sample = [human.kl_per_sample(probs, distribution), human.tv_per_sample(*checked)]
    means = np.column_stack(per_sample) / len(columns)
    sample = binning.BinSums(*np.split(columns.sum(axis=0), 3))

    def estimate(weights: Floats) -> Draws:
        kl, tv = (weights @ means).T
        sums = binning.BinSums(*np.split(weights @ columns, 3, axis=1))
        ece, noise = binning.mean_gap(sums), binning.mean_gap(sums.noise(sample))
        return Draws({"soft_kl": kl, "soft_tv": tv, "soft_ece": ece}, {"soft_ece": noise})

    return estimate


def ood_estimator(scores_id: Floats, scores_ood: Floats) -> OodEstimator:
    """Estimator of the out-of-distribution metrics of one score, from scores (N,) and (M,)."""
    order_id = np.argsort(scores_id, kind="stable")
    order_ood = np.argsort(scores_ood, kind="stable")
    positive, negative = scores_id[order_id], scores_ood[order_ood]

    def estimate(weights_id: Floats, weights_ood: Floats) -> dict[Callable[..., float], Floats]:
        before_id = _weighted.cumulative(np.take(weights_id, order_id, axis=1))
        before_ood = _weighted.cumulative(np.take(weights_ood, order_ood, axis=1))
        sets = positive, negative, before_id, before_ood
        return {
            ood.auroc: _weighted.auroc(*sets),
            ood.fpr95: _weighted.share_kept(*sets),
            ood.fpr95_oodpos: _weighted.share_flagged(*sets),
            ood.aupr: _weighted.precision_kept(*sets),
            ood.aupr_oodpos: _weighted.precision_flagged(*sets),
        }

    return estimate
