"""Structured vector scaling: smoothed temperature scaling, then scales and biases of ln p near the identity."""

import numpy as np

from calgrid.calibrators._structured import StructuredScaling
from calgrid.calibrators.base import Array
from calgrid.registry import register


@register(
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv 2511.03685; probmetrics",
    keeps_argmax=False,
    parameters="2K + 1",
    limits={"ridge": "(0, inf)"},
)
class StructuredVectorScaling(StructuredScaling):
    """Structured vector scaling (SVS), ``softmax((1 + v) * x + b)`` with x = ln p after ``ts_mix``.

    ``mean NLL + K/N (sum v^2 + sum b^2)`` is minimised from v = b = 0; it is strictly convex. x is bounded below by the
    ln of the smallest normal float32. The penalty determines the values of a class without validation samples.

    ``fit_history``: ``temperature``, ``beta``, ``at_lower_bound``, ``at_upper_bound``, ``n_infinite_loss`` and
    ``epsilon`` of ``ts_mix``; ``loss`` (mean NLL plus penalty), ``nll``, ``iterations``, ``gradient_norm``.

    Parameters
    ----------
    ridge : factor of the penalty; large values give ``ts_mix``.
    """

    def _start(self, n_classes: int) -> tuple[Array, float]:
        return np.ones(n_classes), float(n_classes)
