"""Feature clipping: penultimate features are clipped at one threshold before the last layer."""

from typing import cast

import numpy as np

from calgrid.calibrators._clipping import Clipping
from calgrid.calibrators._probabilities import Array, Head, History, Labels
from calgrid.components.registry import register
from calgrid.errors import DataError
from calgrid.metrics.moments import PRODUCT_BLOCK, row_blocks

#: thresholds of the first search, quantiles of |feature|
COARSE = 64
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
class FeatureClipping(Clipping):
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

    kept_accuracy = 0.99

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        features, layer = cast(Array, features), cast(Head, head)
        self.weight, self.bias = layer
        check_reproduces(logits, features, layer)
        coarse = np.unique(np.quantile(np.abs(features), np.arange(1, COARSE + 1) / COARSE))
        coarse = coarse[coarse > 0.0]
        return self._search(lambda c: clipped_logits(features, layer, c), labels, coarse)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return clipped_logits(cast(Array, features), (self.weight, self.bias), self.threshold)
