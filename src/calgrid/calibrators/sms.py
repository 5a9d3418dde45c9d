"""Structured matrix scaling: smoothed temperature scaling, then a linear map of ln p near the
identity.
"""

import numpy as np

from calgrid.calibrators._linear import check_classes
from calgrid.calibrators._probabilities import Array
from calgrid.calibrators.svs import StructuredVectorScaling
from calgrid.components.registry import register


@register(
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv "
    "2511.03685; probmetrics",
    keeps_argmax=False,
    parameters="K^2 + K + 1",
    limits={"ridge": "(0, inf)"},
)
class StructuredMatrixScaling(StructuredVectorScaling):
    """Structured matrix scaling (SMS), ``softmax((I + M) x + b)`` with x = ln p after ``ts_mix``.

    ``mean NLL + K/N (sum M_ii^2 + sum b^2) + K(K-1)/N sum_{i != j} M_ij^2`` is minimised from M = b
    = 0; it is strictly convex. x is bounded below by the ln of the smallest normal float32. At most
    1000 classes.

    ``fit_history`` and ``ridge`` are those of ``svs``.
    """

    def _start(self, n_classes: int) -> tuple[Array, Array]:
        check_classes(self.id, n_classes)
        penalty = np.full((n_classes, n_classes), float(n_classes * (n_classes - 1)))
        np.fill_diagonal(penalty, float(n_classes))
        return np.eye(n_classes), penalty
