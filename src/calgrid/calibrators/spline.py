"""Spline calibration: the slope of a spline through the cumulative calibration error is added to
the confidence.
"""

import numpy as np
from scipy.interpolate import CubicSpline

from calgrid.calibrators._maps import TopLabelMap, without_ties
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    never_certain,
    top_label,
)
from calgrid.components.registry import register


def spline_accuracy(confidence: Array, correct: Array, n_knots: int) -> Array:
    """Return the estimated accuracy ``(N,)``, unbounded, at ascending confidences ``(N,)``."""
    position = np.linspace(0.0, 1.0, len(confidence))
    residual = np.cumsum(correct - confidence) / len(confidence)
    spline = CubicSpline(np.linspace(0.0, 1.0, n_knots), np.eye(n_knots), bc_type="natural")
    at_knots = np.linalg.lstsq(spline(position), residual, rcond=None)[0]
    return confidence + spline(position, 1) @ at_knots


@register(
    source="Gupta, Rahimi, Ajanthan, Mensink, Sminchisescu, Hartley, Calibration of Neural "
    "Networks using Splines, ICLR 2021; code kartikgupta-at-anu/spline-calibration",
    keeps_argmax=False,
    parameters="n_knots",
    limits={"n_knots": "[2, 1000]"},
)
class SplineCalibration(TopLabelMap):
    """Spline calibration of the top label, without bins.

    Validation samples in ascending order of confidence p, with correctness a, give the cumulative
    error ``h_i = sum_{j <= i} (a_j - p_j) / N`` at ``t_i = (i - 1) / (N - 1)``. A natural cubic
    spline with equally spaced knots is fitted to h by least squares, and ``q_i = p_i + h'(t_i)``.
    The map is linear between the points (p_i, q_i) and constant outside. The published setting
    is six knots and natural boundary conditions.

    Ours: equal confidences get their mean correctness and mean q, so that the order of samples does
    not matter; q is kept in ``[1 / (N + 1), N / (N + 1)]`` instead of [0, 1], so that the NLL is
    finite; with fewer samples than knots the confidences are not changed. q is not necessarily
    increasing in p.

    ``fit_history``: ``n_points`` (distinct confidences; 0 if they are not changed).

    Parameters
    ----------
    n_knots : knots of the spline, equally spaced over [0, 1].
    """

    n_knots: int = 6

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        if len(labels) < self.n_knots:
            self.points = self.accuracy = np.array([0.0, 1.0])
            return {"n_points": 0}
        self.points, number, right = without_ties(confidence, predicted == labels)
        raw, index = right / number, np.repeat(np.arange(len(number)), number.astype(np.intp))
        smooth = spline_accuracy(self.points[index], raw[index], self.n_knots)
        self.accuracy = never_certain(np.bincount(index, smooth) / number, len(labels))
        return {"n_points": len(self.points)}
