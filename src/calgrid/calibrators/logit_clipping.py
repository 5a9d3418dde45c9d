"""Logit clipping: logits are clipped at one threshold before the softmax."""

import numpy as np

from calgrid.calibrators._clipping import Clipping
from calgrid.calibrators._probabilities import Array, Head, History, Labels, centred, namespace
from calgrid.components.registry import register

#: thresholds of the first search: quantiles of the logits from this one on
COARSE, LOWEST_QUANTILE = 64, 0.8


def clipped(logits: Array, threshold: float) -> Array:
    """Return logits ``(N, K)`` minus the mean of each row, clipped to ``[-threshold, threshold]``,
    row maximum 0; -inf stays.
    """
    xp = namespace(logits)
    values = xp.where(logits > -np.inf, xp.clip(centred(logits), -threshold, threshold), -np.inf)
    values -= xp.amax(values, axis=1, keepdims=True)
    return values


@register(
    source="code Linwei94/calibrator, Component/model/logit_clipping.py; for features: Tao et al., "
    "Feature Clipping for Uncertainty Calibration, AAAI 2025",
    keeps_argmax=False,
    parameters="1",
)
class LogitClipping(Clipping):
    """``softmax(clip(z, -c, c))`` with the c of lowest validation error, z the logits minus the
    mean of each row.

    Among thresholds that keep more than 95 % of the accuracy, the c of lowest ECE (15 bins; or NLL)
    is taken, the largest among equals (the code: the smallest). Classes above c become equal, and
    the first of them is predicted. The code clips the logits as the network gives them, which
    depends on constants that change no probability; here the mean of a row is 0, as it nearly is in
    most networks. The code tries 2,000 thresholds in steps of 0.01 from the 80 % quantile of the
    logits on; here 64 quantiles from that one on, no clipping, and 32 values between the neighbours
    of the best one are tried.

    ``fit_history``: as of ``fc``.

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    kept_accuracy = 0.95

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        values = centred(logits)[logits > -np.inf]
        coarse = np.quantile(values, np.linspace(LOWEST_QUANTILE, 1.0, COARSE))
        coarse = np.unique(np.append(coarse, np.abs(values).max()))
        return self._search(lambda c: clipped(logits, c), labels, coarse[coarse > 0.0])

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return clipped(logits, self.threshold)
