"""Classwise bins: sums over the samples of each class and bin, in one or many resamples."""

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from calgrid.metrics._inputs import Floats, Places, Predictions, check_bins, computed_once
from calgrid.metrics.binning import BinSums, bin_index


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
