"""Multi-class isotonic regression: one non-decreasing map for the probabilities of all classes."""

import numpy as np

from calgrid.calibrators._maps import lines
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    is_top,
    namespace,
    renormalised,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.calibrators.iso import fit_isotonic
from calgrid.components.registry import register

#: weight of the uncalibrated probability, which breaks ties of the map (as in the authors' code)
TIE_BREAK = 1e-9


@register(
    source="Zhang, Kailkhura, Han, Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
    "Calibration in Deep Learning, ICML 2020; code zhang64-llnl/Mix-n-Match-Calibration, "
    "util_calibration.py",
    keeps_argmax=True,
    parameters="<= N K",
)
class MultiClassIsotonicRegression(Calibrator):
    """IRM, accuracy-preserving isotonic regression for many classes.

    One isotonic regression g on all N K pairs ``(p_ik, 1[y_i = k])``; the output is ``g(p_k) + 1e-9
    p_k`` divided by its sum over classes, as in the authors' code, which keeps the order of the
    classes. Values of g are kept in ``[1 / (N K + 1), N K / (N K + 1)]``: the zeros of the code
    make the NLL infinite.

    ``fit_history``: ``n_points`` (points that define the map).
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        correct = np.zeros(logits.shape, dtype=bool)
        correct[np.arange(len(labels)), labels] = True
        self.scores, self.rates = fit_isotonic(softmax(logits).ravel(), correct.ravel())
        return {"n_points": len(self.scores)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        probabilities = softmax(logits)
        mapped = lines(probabilities, self.scores, self.rates) + TIE_BREAK * probabilities
        # interpolation may round a value above its right neighbour
        xp = namespace(logits)
        mapped = xp.where(is_top(logits), xp.amax(mapped, axis=1, keepdims=True), mapped)
        return renormalised(mapped, probabilities)
