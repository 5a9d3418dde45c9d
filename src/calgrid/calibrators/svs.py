"""Structured vector scaling: smoothed temperature scaling, then scales and biases of ln p near the
identity.
"""

import numpy as np

from calgrid.calibrators._linear import LinearMap, fit_linear
from calgrid.calibrators._probabilities import (
    LOG_TINY,
    Array,
    Head,
    History,
    Labels,
    by_blocks,
    namespace,
)
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.calibrators.ts_mix import fit_smoothed, smoothed
from calgrid.components.registry import register


@register(
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv "
    "2511.03685; probmetrics",
    keeps_argmax=False,
    parameters="2K + 1",
    limits={"ridge": "(0, inf)"},
)
class StructuredVectorScaling(SoftmaxCalibrator):
    """Structured vector scaling (SVS), ``softmax((1 + v) * x + b)`` with x = ln p after ``ts_mix``,
    also for a class whose logit is -inf.

    ``mean NLL + K/N (sum v^2 + sum b^2)`` is minimised from v = b = 0; it is strictly convex. x is
    bounded below by the ln of the smallest normal float32. The penalty determines the values of a
    class without validation samples.

    ``fit_history``: ``temperature``, ``beta``, ``at_lower_bound``, ``at_upper_bound``,
    ``n_infinite_loss`` and ``epsilon`` of ``ts_mix``; ``loss`` (mean NLL plus penalty), ``nll``,
    ``iterations``, ``gradient_norm``.

    Parameters
    ----------
    ridge : factor of the penalty; large values give ``ts_mix``.
    """

    scale_free = True
    maps_impossible = True

    ridge: float = 1.0

    def _start(self, n_classes: int) -> tuple[Array, Array]:
        """Return the identity map and the penalties of its entries, without the factor ``ridge /
        N``.
        """
        return np.ones(n_classes), np.full(n_classes, float(n_classes))

    def _inputs(self, logits: Array) -> Array:
        xp = namespace(logits)
        return xp.clip(xp.log(smoothed(logits, *self.smoothing)), LOG_TINY, None)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_samples, n_classes = logits.shape
        weight, penalty = self._start(n_classes)
        self.smoothing, history = fit_smoothed(logits, labels, self._scale)
        (self.weight, self.bias), fit_history = fit_linear(
            by_blocks(self._inputs, logits),
            labels,
            LinearMap(weight, np.zeros(n_classes)),
            weight_ridge=self.ridge * penalty / n_samples,
            bias_ridge=self.ridge * n_classes / n_samples,
        )
        warnings = history["warnings"] + fit_history["warnings"]
        del history["loss"]
        return {**history, **fit_history, "warnings": warnings}

    def _scores(self, logits: Array, features: Array | None) -> Array:
        linear = LinearMap(self.weight, self.bias)
        return by_blocks(lambda rows: linear.scores(self._inputs(rows)), logits)
