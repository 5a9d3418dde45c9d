"""Class-based temperature scaling: a temperature for each class, chosen greedily by calibration
error.
"""

from typing import NamedTuple

import numpy as np

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Places,
    centred,
    namespace,
    softmax,
)
from calgrid.calibrators._temperature import KEPT, decade, fit_rescaled, temperature_range
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register
from calgrid.metrics import ece
from calgrid.metrics.binning import bin_index, inner_edges
from calgrid.metrics.moments import row_blocks

#: minimum decrease of the error, so that rounding never changes a temperature
LEAST_GAIN = 1e-12
#: share of the others' sum below which a term is lost in rounding
LOST = 1e-17


class Others(NamedTuple):
    """Scaled logits of the other classes, each ``(N,)``: their maximum, its class, and their sum of
    exponentials.
    """

    largest: Array
    winner: Places
    total: Array


class ClassTemperatures:
    """Temperatures of all classes, and the calibration error as a function of one of them.

    With scaled logits ``a_k = z_k / T_k``, the confidence of a sample depends on class c only
    through the maximum of the other classes ``M = max a_j`` and their sum ``s = sum exp(a_j - M)``,
    j != c. With ``r = z_c / T - M``::

        confidence = 1 / (s exp(-max(r, 0)) + exp(min(r, 0))),    c is predicted where r > 0

    M and s are stored, so all G temperatures of a class cost N G instead of N K G. Two cases are
    cheaper: if c is never predicted and the confidence stays in its bin for all temperatures, only
    the sum of confidences changes; if exp(r) is below the rounding of s, nothing changes.

    Parameters
    ----------
    logits : ``(N, K)``; -inf allowed.
    labels : ``(N,)``.
    start : initial temperature of all classes.
    grid : ``(G,)``, ascending candidates for a temperature.
    n_bins : M of the calibration error.
    """

    def __init__(
        self, logits: Array, labels: Labels, start: float, grid: Array, n_bins: int
    ) -> None:
        self.temperatures = np.full(logits.shape[1], start)
        self._rows = logits
        self._columns = np.ascontiguousarray(logits.T)
        self._labels = labels
        self.grid = grid
        self._n_bins = n_bins
        n_samples = len(labels)
        self._first, self._second, self._total = np.empty((3, n_samples))
        self._first_class, self._second_class = np.empty((2, n_samples), dtype=np.intp)
        self._edges = np.concatenate([[0.0], inner_edges(n_bins), [1.0]])
        self.refresh()

    def refresh(self) -> None:
        """Recompute maxima and sums of each sample from the logits, without accumulated rounding
        errors.
        """
        for block in row_blocks(*self._rows.shape):
            self._refresh(np.arange(block.start, block.stop))

    def _refresh(self, samples: Places) -> None:
        scaled = self._rows[samples] / self.temperatures
        self._total[samples] = np.exp(scaled - scaled.max(axis=1, keepdims=True)).sum(axis=1)
        # the first among ties
        rows, first = np.arange(len(scaled)), scaled.argmax(axis=1)
        self._first[samples], self._first_class[samples] = scaled[rows, first], first
        scaled[rows, first] = -np.inf
        second = scaled.argmax(axis=1)
        # any other class, if only one is possible
        second = np.where(second == first, (first + 1) % scaled.shape[1], second)
        self._second[samples], self._second_class[samples] = scaled[rows, second], second

    def current(self) -> tuple[float, int]:
        """Return the calibration error and the number of correct predictions at the current
        temperatures.
        """
        correct = self._first_class == self._labels
        confidence = 1.0 / self._total
        gaps = np.bincount(
            bin_index(confidence, self._n_bins), confidence - correct, minlength=self._n_bins
        )
        return float(np.abs(gaps).sum()) / len(correct), int(correct.sum())

    def errors(self, label: int) -> tuple[Array, Places]:
        """Return the calibration error and the number of correct predictions ``(G,)`` for each T of
        one class.
        """
        column, others = self._columns[label], self._others(label)
        bounds = column / self.grid[[0, -1], None] - others.largest
        term = np.exp(np.minimum(bounds.max(axis=0), 0.0))
        least = 1.0 / (others.total + term)
        most = 1.0 / (others.total + np.exp(np.minimum(bounds.min(axis=0), 0.0)))
        # this may be off by one at an edge; the comparison with the edges then selects the exact
        # computation
        cell = np.clip(np.ceil(most * self._n_bins).astype(np.intp) - 1, 0, self._n_bins - 1)
        in_cell = (least > self._edges[cell]) & (most <= self._edges[cell + 1])
        simple = (bounds.max(axis=0) < 0.0) & in_cell
        moving = simple & (term > LOST * others.total)

        others_correct = others.winner == self._labels
        still = np.flatnonzero(simple & ~moving)
        fixed = np.bincount(cell[still], 1.0 / others.total[still], minlength=self._n_bins)
        correct = np.bincount(cell[simple], others_correct[simple], minlength=self._n_bins)
        moved = self._moving_sums(np.flatnonzero(moving), cell, column, others)
        gaps = (fixed - correct)[:, None] + moved
        crossing, correct = self._crossing_gaps(np.flatnonzero(~simple), label, column, others)
        error = np.abs(gaps + crossing).sum(axis=0) / len(column)
        return error, correct + int(others_correct[simple].sum())

    def accept(self, label: int, temperature: float) -> None:
        """Set the temperature of one class."""
        column = self._columns[label]
        before, after = column / self.temperatures[label], column / temperature
        self.temperatures[label] = temperature
        anew = (self._first_class == label) | (self._second_class == label) | (after >= self._first)
        term_before = np.exp(np.minimum(before - self._first, 0.0))
        self._total += np.exp(np.minimum(after - self._first, 0.0)) - term_before
        rises = (after > self._second) | ((after == self._second) & (label < self._second_class))
        self._second = np.where(rises, after, self._second)
        self._second_class = np.where(rises, label, self._second_class)
        self._refresh(np.flatnonzero(anew))

    def _others(self, label: int) -> Others:
        ours = np.flatnonzero(self._first_class == label)
        largest, winner = self._first.copy(), self._first_class.copy()
        largest[ours], winner[ours] = self._second[ours], self._second_class[ours]
        # a class that is not the largest has at most half of the total, so the difference keeps its
        # precision
        scaled = self._columns[label] / self.temperatures[label]
        total = self._total - np.exp(np.minimum(scaled - self._first, 0.0))
        alone = self._rows[ours] / self.temperatures
        alone[:, label] = -np.inf
        possible = np.isfinite(largest[ours])
        reference = np.where(possible, largest[ours], 0.0)
        total[ours] = np.where(possible, np.exp(alone - reference[:, None]).sum(axis=1), 1.0)
        return Others(largest, winner, total)

    def _moving_sums(self, samples: Places, cell: Places, column: Array, others: Others) -> Array:
        """Return the sum of confidences ``(M, G)`` of samples that do not change their bin."""
        # bytes are sorted in linear time
        number_type = np.uint8 if self._n_bins < 256 else np.intp
        samples = samples[np.argsort(cell[samples].astype(number_type), kind="stable")]
        ends = np.cumsum(np.bincount(cell[samples], minlength=self._n_bins))
        logit, largest, total = column[samples], others.largest[samples], others.total[samples]
        sums = np.zeros((self._n_bins, len(self.grid)))
        for number, (begin, end) in enumerate(zip(np.append(0, ends), ends, strict=False)):
            for part in row_blocks(int(end - begin), len(self.grid)):
                block = slice(begin + part.start, begin + part.stop)
                terms = np.multiply.outer(1.0 / self.grid, logit[block])
                terms -= largest[block]
                np.exp(terms, out=terms)
                terms += total[block]
                np.reciprocal(terms, out=terms)
                sums[number] += terms.sum(axis=1)
        return sums

    def _crossing_gaps(
        self, samples: Places, label: int, column: Array, others: Others
    ) -> tuple[Array, Places]:
        """Return confidence minus correct ``(M, G)`` and the number of correct predictions ``(G,)``
        of any samples.
        """
        # divided as in refresh(): multiplying by a rounded 1 / T could break ties differently
        scaled = column[samples] / self.grid[:, None]
        largest, winner = others.largest[samples], others.winner[samples]
        lead = scaled - largest
        total = others.total[samples] * np.exp(-np.maximum(lead, 0.0))
        confidence = 1.0 / (total + np.exp(np.minimum(lead, 0.0)))
        wins = (scaled > largest) | ((scaled == largest) & (label < winner))
        correct = np.where(wins, self._labels[samples] == label, winner == self._labels[samples])
        shape = (self._n_bins, len(self.grid))
        position = np.arange(len(self.grid))[:, None]
        place = bin_index(confidence, self._n_bins) * len(self.grid) + position
        residual = confidence - correct
        gaps = np.bincount(place.ravel(), residual.ravel(), minlength=shape[0] * shape[1])
        return gaps.reshape(shape).astype(np.float64, copy=False), correct.sum(axis=1)


@register(
    source="Frenkel & Goldberger, Network Calibration by Class-based Temperature Scaling, EUSIPCO "
    "2021",
    keeps_argmax=False,
    parameters="K",
    limits={
        "low": "[0.1, high]",
        "high": "(0, 1000]",
        "sweeps": "[1, inf)",
        "n_bins": "[1, 1000000]",
    },
)
class ClassTemperatureScaling(SoftmaxCalibrator):
    """Class-based temperature scaling (CTS), ``softmax(z_k / T_k)``.

    All T_k start from the temperature of ``ts``, clipped to [low, high]. A sweep sets T_k of each
    class in turn to the value in low, low + 0.1, ..., high with the lowest validation ECE over all
    samples, the others fixed, if this is lower than before. Sweeps end when nothing changes.
    Classes without validation samples keep their T.

    The authors' code (liorfrenkel1992/calibration) starts from the best ECE among T = 0.1, ...,
    10.0, and takes the same grid for the classes in one sweep; a later version moves each T by at
    most 0.2. Start, grid, sweeps and the accuracy guard here are those of a public port, calibench.
    The paper of SMART prints a grid of 0.1 to 10 and no guard; ``cts_smart`` in its study is
    ``low=0.1, high=10, keep_accuracy=False``. z is the logits minus the mean of their row, because
    the map is not invariant to a constant added to a row; public code uses the logits without this.
    The grid is multiplied by a power of ten if the unit of the logits is below 0.1 or above 10, as
    with cosines.

    ``fit_history``: ``loss`` (ECE at the start and after each sweep), ``sweeps``, ``changed``
    (classes whose temperature changed, for each sweep), ``start_temperature``, ``temperature_min``,
    ``_mean``, ``_max``.

    Parameters
    ----------
    low, high : smallest and largest temperature of the grid, rounded to tenths.
    sweeps : maximum number of sweeps through the classes.
    n_bins : equal-width bins of the ECE.
    keep_accuracy : reject temperatures that lower the accuracy on the validation samples.
    """

    low: float = 0.5
    high: float = 5.0
    sweeps: int = 5
    n_bins: int = 15
    keep_accuracy: bool = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_classes = logits.shape[1]
        fit, _ = fit_rescaled(logits, labels)
        grid = np.arange(round(10 * self.low), round(10 * self.high) + 1) / 10.0
        grid *= decade(logits)
        start = float(np.clip(fit.temperature, grid[0], grid[-1]))
        search = ClassTemperatures(centred(logits), labels, start, grid, self.n_bins)
        present = np.unique(labels)
        losses = [search.current()[0]]
        changed: list[int] = []
        while len(changed) < self.sweeps and (not changed or changed[-1]):
            changed.append(self._sweep(search, present))
            search.refresh()
            losses.append(search.current()[0])
        self.temperatures = search.temperatures
        at_end = int(((self.temperatures == grid[0]) | (self.temperatures == grid[-1])).sum())
        warning = (
            f"{at_end} of {n_classes} classes have the smallest or largest temperature of the "
            f"grid, {grid[0]:g} or {grid[-1]:g}: one beyond may do better."
        )
        warnings = [warning] if at_end else []
        if ece(softmax(logits), labels, self.n_bins) < losses[-1] - LEAST_GAIN:
            self.temperatures, warnings = np.ones(n_classes), [KEPT]
        return {
            "loss": losses,
            "sweeps": len(changed),
            "changed": changed,
            "start_temperature": start,
            **temperature_range(self.temperatures),
            "warnings": warnings,
        }

    def _sweep(self, search: ClassTemperatures, classes: Labels) -> int:
        """Search the grid for each class in turn; return the number of changed temperatures."""
        lowest, correct = search.current()
        changed = 0
        for label in classes.tolist():
            errors, n_correct = search.errors(label)
            if self.keep_accuracy:
                errors = np.where(n_correct >= correct, errors, np.inf)
            best = int(errors.argmin())
            if errors[best] < lowest - LEAST_GAIN:
                search.accept(label, float(search.grid[best]))
                lowest, correct = float(errors[best]), int(n_correct[best])
                changed += 1
        return changed

    def _scores(self, logits: Array, features: Array | None) -> Array:
        scaled = centred(logits) / self.temperatures
        scaled -= namespace(scaled).amax(scaled, axis=1, keepdims=True)
        return scaled
