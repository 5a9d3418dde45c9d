"""Feature clipping: penultimate features are clipped at one threshold before the last layer."""

from typing import Any, Literal, cast

import numpy as np

from calgrid.calibrators.base import Array, Head, Labels, SoftmaxCalibrator, end_of_grid
from calgrid.components.registry import register
from calgrid.errors import DataError
from calgrid.metrics import Output, Predictions, accuracy, ece, nll
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks

#: thresholds of the first search (quantiles of |feature|) and of the second (between the best one's
#: neighbours)
COARSE, FINE = 64, 32
N_BINS = 15
#: minimum accuracy, as a share of that without clipping
KEPT_ACCURACY = 0.99
#: tolerance between the logits of the head and the given ones, as a share of their largest gap:
#: float32 sums need 1e-5, and a network in bfloat16 rounds by 4e-3
TOLERANCE = 1e-2


def clipped_logits(features: Array, head: Head, threshold: float) -> Array:
    """Return the head's logits ``(N, K)`` of features clipped to ``[-threshold, threshold]``, row
    maximum 0.
    """
    weight, bias = head
    logits = np.empty((len(features), len(bias)))
    for block in row_blocks(len(features), features.shape[1], PRODUCT_BLOCK):
        np.matmul(np.clip(features[block], -threshold, threshold), weight.T, out=logits[block])
    logits += bias
    logits -= logits.max(axis=1, keepdims=True)
    return logits


def check_reproduces(logits: Array, features: Array, head: Head) -> None:
    """Raise DataError unless features and head give the logits ``(N, K)`` (row maximum 0) up to a
    constant per row.
    """
    gap = float(np.abs(clipped_logits(features, head, np.inf) - logits).max())
    # an impossible class (-inf) does not match any head
    if not (np.isfinite(gap) and gap <= 1e-6 - TOLERANCE * logits.min()):
        raise DataError(
            "features and head do not give these logits (features @ weight.T + bias is off by up "
            f"to {gap:.3g}); export features, head and logits from the same checkpoint, without "
            "masking classes."
        )


@register(
    source="Tao et al., Feature Clipping for Uncertainty Calibration, AAAI 2025; code "
    "Linwei94/AAAI2025-FC, calibration/feature_clipping.py",
    needs=("logits", "features", "head"),
    keeps_argmax=False,
    parameters="1",
)
class FeatureClipping(SoftmaxCalibrator):
    """FC: ``softmax(W clip(f, -c, c) + b)`` with the c of lowest validation error.

    Among thresholds that keep more than 99 % of the accuracy, the c of lowest ECE (15 bins; or NLL)
    is taken; if there is none, features are not clipped. The code tries 0.01, 0.02, ..., 20, which
    may miss the range of the features; here 64 quantiles of |f| and then 32 values between the
    neighbours of the best one are tried; of equal ones the largest is taken. Clipping is two-sided,
    which matters if features can be negative.

    Predictions use the features and the head of the fit, and only the shape of the logits. The fit
    checks that features and head reproduce the logits.

    ``fit_history``: ``n_tried``, ``accuracy`` and ``accuracy_unclipped`` on the validation samples,
    ``clipped``, and if so ``threshold`` and ``objective`` (the lowest ECE or NLL).

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    def __init__(self, *, criterion: Literal["ece", "nll"] = "ece") -> None:
        super().__init__()
        self.criterion = criterion

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        features, (self.weight, self.bias) = cast(Array, features), cast(Head, head)
        check_reproduces(logits, features, (self.weight, self.bias))
        unclipped = self._trial(features, labels, np.inf)[2]
        least = KEPT_ACCURACY * unclipped
        coarse = np.unique(np.quantile(np.abs(features), np.arange(1, COARSE + 1) / COARSE))
        coarse = coarse[coarse > 0.0]
        trials = [self._trial(features, labels, c) for c in coarse]
        accurate = [trial for trial in trials if trial[2] > least]
        if not accurate:
            self.threshold = np.inf
            return {
                "n_tried": len(coarse),
                "accuracy_unclipped": unclipped,
                "accuracy": unclipped,
                "clipped": False,
            }
        edges = np.concatenate([[0.0], coarse, coarse[-1:]])
        below = int(np.searchsorted(coarse, -min(accurate)[1]))
        fine = np.linspace(edges[below], edges[below + 2], FINE + 2)[1:-1]
        trials += [self._trial(features, labels, c) for c in fine]
        objective, minus_threshold, clipped = min(trial for trial in trials if trial[2] > least)
        self.threshold = -minus_threshold
        warnings = []
        if below == 0:
            warnings = end_of_grid("threshold", self.threshold, (fine[0], np.inf))
        return {
            "n_tried": len(trials),
            "accuracy_unclipped": unclipped,
            "accuracy": clipped,
            "clipped": True,
            "threshold": self.threshold,
            "objective": objective,
            "warnings": warnings,
        }

    def _trial(
        self, features: Array, labels: Labels, threshold: float
    ) -> tuple[float, float, float]:
        """Return objective, minus the threshold (of equal objectives the largest is taken), and
        accuracy.
        """
        logits = clipped_logits(features, (self.weight, self.bias), threshold)
        output = Output.of_scores(logits)
        predictions = Predictions(output.probs, labels, output.logs)
        criteria = {"ece": ece, "nll": nll}
        objective = criteria[self.criterion](predictions, labels, N_BINS)
        return objective, -float(threshold), accuracy(predictions, labels)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        head = self.weight, self.bias
        return clipped_logits(cast(Array, features), head, self.threshold)
