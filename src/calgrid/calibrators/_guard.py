"""Cross-validation: does a temperature network have a lower held-out loss than a single temperature?"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature import fit_temperature
from calgrid.calibrators.base import Calibrator

Array = NDArray[np.float64]
FOLDS = 5
#: minimum number of samples per fold
LEAST_IN_FOLD = 2
#: smallest probability of an outcome in the log loss
FLOOR = 1e-12


@dataclass(frozen=True)
class Gain:
    """Gain of the network over a single temperature in held-out top-label log loss.

    Attributes
    ----------
    mean : loss of the single temperature minus that of the network, in nats per sample.
    error : its standard error over samples.
    """

    mean: float
    error: float

    @property
    def is_real(self) -> bool:
        """Whether the gain exceeds one standard error."""
        return self.mean > self.error


def top_label_log_loss(probabilities: Array, labels: NDArray[np.int64]) -> Array:
    """Return ``-ln p`` of the top probability where it is right, else ``-ln(1 - p)``, ``(N,)``."""
    rows, predicted = np.arange(len(labels)), probabilities.argmax(axis=1)
    others = probabilities.copy()
    # summed without the top term, because 1 - p would lose precision
    others[rows, predicted] = 0.0
    outcome = np.where(predicted == labels, probabilities[rows, predicted], others.sum(axis=1))
    return -np.log(np.maximum(outcome, FLOOR))


def cross_validated_gain(
    build: Callable[[], Calibrator], logits: Array, labels: NDArray[np.int64], generator: np.random.Generator
) -> Gain:
    """Five-fold cross-validation of network and single temperature.

    The score is the log loss of the confidence as a forecast of correctness: it is proper, and it depends on the
    confidence only, like the objective of the network. The gain is 0 for fewer than ten samples.

    Parameters
    ----------
    build : returns an unfitted calibrator.
    logits : ``(N, K)``; the calibrator may depend on constants added to rows.
    labels : ``(N,)``.
    generator : assigns samples to folds.
    """
    n_samples = len(labels)
    if n_samples < FOLDS * LEAST_IN_FOLD:
        return Gain(0.0, 0.0)
    fold = generator.permutation(n_samples) % FOLDS
    shifted = logits - logits.max(axis=1, keepdims=True)
    gain = np.empty(n_samples)
    for number in range(FOLDS):
        inside, outside = fold == number, fold != number
        network = build().fit(logits[outside], labels[outside])
        beta = fit_temperature(shifted[outside], labels[outside]).beta
        single = top_label_log_loss(softmax(shifted[inside] * beta), labels[inside])
        gain[inside] = single - top_label_log_loss(network.predict_proba(logits[inside]), labels[inside])
    return Gain(float(gain.mean()), float(gain.std(ddof=1) / np.sqrt(n_samples)))
