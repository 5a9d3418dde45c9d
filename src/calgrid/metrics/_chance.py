"""Calibration errors that chance gives a calibrated model, and changes of scores by errors that
were not seen: see :mod:`calgrid.metrics.intervals`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from calgrid.metrics import _weighted, binning, kernel, recalibration, scoring, smooth
from calgrid.metrics._inputs import Floats, Mask, Places, Predictions
from calgrid.metrics.failure import harmonic_tails
from calgrid.metrics.moments import row_blocks
from calgrid.metrics.table import MOST_SLOW

#: most sets of labels that are drawn from the probabilities
MOST_DRAWS = 99
#: errors that are added to every second resample: 1.96 deviations of their number are 3.9, and the
#: exact upper end of a Poisson mean of which no event was seen is 3.7
ADDED_ERRORS = 4
#: errors of a sample from which on none are added; with fewer, added ones count in proportion to
#: the missing ones
MANY_ERRORS = 50
#: doubt of a model that has none
TINY = 1e-300
#: largest inverse temperature at which added errors are scored: without errors there is no best one
LARGEST_BETA = 2.0


def chance_errors(
    predictions: Predictions, n_bins: int, n_draws: int, seed: int
) -> dict[str, Floats]:
    """Errors (Q,), by metric, of a calibrated model with the same probabilities: its labels are
    drawn from the probabilities.

    Parameters
    ----------
    predictions : N samples, whose labels are not used. n_bins : number of bins.
    n_draws : Q. seed : of the draws, which depend on N and seed alone.
    """
    uniform = np.random.default_rng([seed, 3]).random((n_draws, predictions.n_samples))
    # a draw is the most probable label where its number is below the confidence
    ascending = predictions.confidence[predictions.order]
    correct = np.take(uniform, predictions.order, axis=1) < ascending
    residual = (ascending - correct) / predictions.n_samples
    nodes = kernel.node_shares(ascending).T @ residual.T
    labels = _other_labels(predictions.probs, uniform)
    errors = {
        **_ordered_errors(ascending, predictions.tie_ends, correct, n_bins),
        **_classwise_errors(predictions, n_bins, labels, n_draws),
        "smece": kernel.fixed_points(nodes.T),
    }
    if predictions.probs.size <= MOST_SLOW:
        errors |= _directed_errors(predictions, labels, n_draws)
    return errors


class Labels(NamedTuple):
    """Drawn labels that are not the most probable ones: number of the draw, sample and class of
    each, (L,).
    """

    draw: Places
    row: Places
    label: Places


def _other_labels(probs: Floats, uniform: Floats) -> Labels:
    """Labels of probabilities (N, K), by numbers (Q, N) that are uniform in [0, 1)."""
    parts = []
    for block in row_blocks(*probs.shape):
        rest, numbers = probs[block].copy(), uniform[:, block]
        rows, top = np.arange(len(rest)), rest.argmax(axis=1)
        beyond = numbers - rest[rows, top]
        draw, row = np.nonzero(beyond >= 0)
        rest[rows, top] = 0
        np.cumsum(rest, axis=1, out=rest)
        # one search over all rows
        rest += rows[:, None]
        place = np.searchsorted(rest.ravel(), row + beyond[draw, row], side="right")
        label = np.minimum(place - row * rest.shape[1], rest.shape[1] - 1)
        parts.append((draw, row + block.start, label))
    return Labels(*map(np.concatenate, zip(*parts, strict=True)))


def _ordered_errors(
    ascending: Floats, ends: Places, correct: Mask, n_bins: int
) -> dict[str, Floats]:
    """Errors (Q,) from sorted confidences (N,), ends of their ties (G,) and correct predictions (Q,
    N) in the same order.
    """
    n_draws, n = correct.shape
    once = np.broadcast_to(1, (n_draws, n))
    ranks = _weighted.Ranks(np.broadcast_to(np.arange(n + 1.0), (n_draws, n + 1)))
    right = _weighted.cumulative(correct.astype(np.float64))
    gaps = _weighted.cumulative(ascending[None]) - right
    drawn_correct, drawn = (_weighted.Carried(ascending, once, 0, sums) for sums in (right, gaps))
    borders = binning.bin_borders(ascending, n_bins)
    edges = _weighted.adaptive_positions(ascending, ranks, n_bins)[0]
    sums = binning.BinSums(np.diff(borders), np.diff(gaps[:, borders], axis=1), np.zeros(()))
    positions, cell = smooth.cells_of(ascending)
    of_cells = np.append(0, np.cumsum(np.bincount(cell)))
    (swept,) = _weighted.sweep(drawn_correct, ranks, (drawn,), norm=1)
    return {
        **{name: read(sums) for name, read in binning.BINNED.items()},
        **_weighted.errors(gaps, gaps[:, edges], ranks, n_bins, ends),
        "ece_sweep": swept,
        "smce": smooth.optimum(positions, np.diff(gaps[:, of_cells], axis=1) / n),
    }


def _classwise_errors(
    predictions: Predictions, n_bins: int, labels: Labels, n_draws: int
) -> dict[str, Floats]:
    """Errors (Q,) of the bins of each class."""
    plain, k = binning.classwise_sums(predictions, n_bins), predictions.probs.shape[1]
    top = predictions.probs.argmax(axis=1)
    of_top = top * n_bins + binning.bin_index(predictions.confidence, n_bins)
    drawn_probs = predictions.probs[labels.row, labels.label]
    cell = labels.label * n_bins + binning.bin_index(drawn_probs, n_bins)
    first, size = labels.draw * (k * n_bins), n_draws * k * n_bins
    moved = np.bincount(first + cell, minlength=size)
    moved -= np.bincount(first + of_top[labels.row], minlength=size)
    sure = np.bincount(of_top, minlength=k * n_bins)
    correct = (sure + moved.reshape(n_draws, -1)).reshape(n_draws, k, n_bins).astype(np.float64)
    sums = binning.BinSums(plain.count, plain.confidence, correct)
    return {
        "cece": binning.mean_gap(sums).mean(axis=1),
        "brier_calibration": binning.debiased_square(sums).sum(axis=1),
    }


def _directed_errors(predictions: Predictions, labels: Labels, n_draws: int) -> dict[str, Floats]:
    """L_p errors (Q,) along the directions of the sample."""
    (n, k), top = predictions.probs.shape, predictions.probs.argmax(axis=1)
    place, place_of_top = labels.row * k + labels.label, np.arange(n) * k + top
    errors = {}
    for by in recalibration.MAPS:
        for p, direction in recalibration.directions(predictions, by).items():
            of_top = direction.take(place_of_top)
            moved = direction.take(place) - of_top.take(labels.row)
            sums = np.bincount(labels.draw, moved, n_draws) + of_top.sum()
            errors[f"l{p}_{by}"] = (sums - np.vdot(direction, predictions.probs)) / n
    return errors


def added_errors(
    predictions: Predictions, n_bins: int, n_resamples: int, seed: int
) -> tuple[dict[str, Floats], Floats]:
    """Changes (R,), by metric, of means over samples, AURC, ``squared_ce`` and parts of scores by
    unseen errors, and the change of ``squared_ce`` by products of two.

    Every second resample gets ADDED_ERRORS more errors: correct samples, drawn in proportion to 1 -
    confidence, whose label becomes the most probable other class. Random numbers depend on N and
    the seed alone and are places in the order of confidence, so that similar models get similar
    errors. Added errors count less the more errors the sample has, and not at all from MANY_ERRORS
    on.
    """
    n = predictions.n_samples
    weight = 1 - (n - predictions.correct.sum()) / MANY_ERRORS
    if weight <= 0 or not predictions.correct.any():
        return {}, np.zeros(n_resamples)
    numbers = np.random.default_rng([seed, 2]).random((n_resamples, ADDED_ERRORS))
    # the same of any number of resamples
    numbers = numbers[1::2].ravel()
    doubt = np.maximum(1 - predictions.confidence, TINY) * predictions.correct
    ends = doubt[predictions.order].cumsum()
    place = np.searchsorted(ends, numbers * ends[-1], side="right")
    picked = predictions.order[np.minimum(place, n - 1)]  # rounding of the sum
    kept = predictions.rows(picked)
    others = kept.probs.copy()
    others[np.arange(len(picked)), kept.labels] = -1
    changed = replace(kept, labels=others.argmax(axis=1))
    of_sample = {
        "accuracy": changed.correct - kept.correct,
        "top5": scoring.top5_per_sample(changed) - scoring.top5_per_sample(kept),
        "nll": scoring.nll_per_sample(changed) - scoring.nll_per_sample(kept),
        "brier": scoring.brier_per_sample(changed) - scoring.brier_per_sample(kept),
    }
    count = np.bincount(predictions.labels)
    of_class = count[kept.labels] * (count > 0).sum() / n
    of_sample["balanced_accuracy"] = of_sample["accuracy"] / of_class
    if predictions.probs.size <= MOST_SLOW:
        beta = min(recalibration.nll_parts(predictions).beta, LARGEST_BETA)
        of_sample["nll_refinement"] = beta * of_sample["nll"]
        of_sample["nll_calibration"] = (1 - beta) * of_sample["nll"]
    # the mean over ties of what an error there adds to N times the AURC
    ascending, there = predictions.confidence[predictions.order], predictions.confidence[picked]
    area = np.append(0, np.cumsum(harmonic_tails(n)))
    begin, end = (n - np.searchsorted(ascending, there, side) for side in ("right", "left"))
    of_sample["aurc"] = (area[end] - area[begin]) / (end - begin)
    bins = binning.residual_bins(predictions, n_bins)
    place, residual = bins.place[picked], bins.residual[picked]
    # a sample that is alone in its bin does not count
    moved = (np.bincount(bins.place)[place] > 1).astype(np.float64)
    of_sample["squared_ce"] = 2 * moved * (bins.sums[place] - residual) / bins.others[place]
    errors = np.zeros((n_resamples // 2, n_bins))
    np.add.at(errors, (np.arange(len(picked)) // ADDED_ERRORS, place), moved)
    pairs = np.zeros(n_resamples)
    pairs[1::2] = weight**2 * (errors * (errors - 1) / bins.others).sum(axis=1) / n
    changes = {}
    for name, values in of_sample.items():
        changes[name] = np.zeros(n_resamples)
        changes[name][1::2] = weight * values.reshape(-1, ADDED_ERRORS).sum(axis=1) / n
    return changes, pairs
