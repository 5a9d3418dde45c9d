"""Temperature scaling by grid search on the expected calibration error."""

import numpy as np

from calgrid.calibrators._probabilities import Array, Head, History, Labels, rescaled, softmax
from calgrid.calibrators._temperature import KEPT, decade
from calgrid.calibrators.base import SoftmaxCalibrator, end_of_grid
from calgrid.components.registry import register
from calgrid.metrics import ece
from calgrid.metrics.binning import bin_index
from calgrid.metrics.moments import LEAST_EXPONENT, row_blocks

#: temperatures 0.1, 0.2, ..., 10.0
N_TEMPERATURES, STEP = 100, 0.1
#: smaller terms are lost in a sum of at least 1, and their squares are denormal numbers, which are
#: slow
LEAST = float(np.exp(0.5 * LEAST_EXPONENT))


def confidences(logits: Array) -> Array:
    """Return the confidence ``(100, N)`` at each temperature of the grid; logits have row maximum
    0.

    Half of the exponentials are squares of others: each T up to 5 is half of exactly one T above 5.
    """
    n_samples, n_classes = logits.shape
    total, ones = np.empty((N_TEMPERATURES, n_samples)), np.ones(n_classes)
    for block in row_blocks(n_samples, n_classes):
        part = logits[block]
        weights = np.empty_like(part)
        for first in range(N_TEMPERATURES // 2 + 1, N_TEMPERATURES + 1):
            np.multiply(part, 1.0 / (STEP * first), out=weights)
            np.exp(np.maximum(weights, LEAST_EXPONENT, out=weights), out=weights)
            step = first
            np.matmul(weights, ones, out=total[step - 1, block])
            while step % 2 == 0:
                step //= 2
                np.maximum(weights, LEAST, out=weights)
                np.square(weights, out=weights)
                np.matmul(weights, ones, out=total[step - 1, block])
    return 1.0 / total


@register(
    source="Mukhoti et al., Calibrating Deep Neural Networks using Focal Loss, NeurIPS 2020; code "
    "focal_calibration",
    keeps_argmax=True,
    parameters="1",
    limits={"n_bins": "[1, 1000000]"},
)
class TemperatureByGrid(SoftmaxCalibrator):
    """Temperature scaling with the T in 0.1, 0.2, ..., 10.0 of lowest validation ECE, the first
    among equals.

    The default of the code of the focal-loss paper, and therefore of several published rows named
    temperature scaling. The ECE has equal-width bins (low, high]. The grid is multiplied by a
    power of ten if the unit of the logits is below 0.1 or above 10, as with cosines.

    ``fit_history``: ``temperature``, ``loss`` (the ECE at each T of the grid), ``ece`` (the
    lowest).

    Parameters
    ----------
    n_bins : bins of the ECE.
    """

    n_bins: int = 15

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        factor = decade(logits)
        confidence = confidences(rescaled(logits, factor))
        residual = confidence - (logits.argmax(axis=1) == labels)
        cell = bin_index(confidence, self.n_bins) + self.n_bins * np.arange(N_TEMPERATURES)[:, None]
        gaps = np.bincount(cell.ravel(), residual.ravel(), minlength=self.n_bins * N_TEMPERATURES)
        errors = np.abs(gaps.reshape(N_TEMPERATURES, self.n_bins)).sum(axis=1) / len(labels)
        self.temperature = factor * STEP * (int(errors.argmin()) + 1)
        ends = factor * STEP, factor * STEP * N_TEMPERATURES
        warnings = end_of_grid("temperature", self.temperature, ends)
        lowest = float(errors.min())
        if factor != 1.0:  # else T = 1 is in the grid
            unchanged = ece(softmax(logits), labels, self.n_bins)
            if unchanged < lowest:
                self.temperature, lowest, warnings = 1.0, unchanged, [KEPT]
        return {
            "temperature": self.temperature,
            "loss": errors.tolist(),
            "ece": lowest,
            "warnings": warnings,
        }

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits / self.temperature
