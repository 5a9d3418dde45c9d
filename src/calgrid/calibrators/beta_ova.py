"""Beta calibration of each class's probability, one class against the others."""

import numpy as np

from calgrid.calibrators._logistic import notes
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    log_probabilities,
    renormalised,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.calibrators.beta import beta_map, fit_beta
from calgrid.components.registry import register


@register(
    source="Kull, Silva Filho, Flach, Beta calibration: a well-founded and easily implemented "
    "improvement on logistic calibration for binary classifiers, AISTATS 2017; code betacal",
    keeps_argmax=False,
    parameters="3K",
)
class BetaCalibrationOneVsAll(Calibrator):
    """One-vs-all beta calibration: the map of ``beta`` for each class's probability, rows divided
    by their sums.

    With two classes this is the published binary form. A class without validation samples keeps
    its probability, and one whose probability separates its samples from the others has the penalty
    of ``beta`` (ours).

    ``fit_history``: ``n_absent`` (classes without validation samples).
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        scores, rests = log_probabilities(logits)
        self.classes = np.unique(labels)
        fits = [fit_beta(scores[:, k], rests[:, k], (labels == k) * 1.0) for k in self.classes]
        self.coefficients = np.stack([fit.coefficients for fit in fits])
        return {
            "n_absent": logits.shape[1] - len(self.classes),
            **notes(fits, logits.shape[1]),
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        scores, rests = log_probabilities(logits)
        probabilities = softmax(logits)
        mapped = probabilities * 1.0  # a copy
        mapped[:, self.classes] = beta_map(
            self.coefficients.T, scores[:, self.classes], rests[:, self.classes]
        )
        return renormalised(mapped, probabilities)
