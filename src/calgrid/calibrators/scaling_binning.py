"""Scaling-binning: Platt scaling of the confidence, averaged in bins of equal counts."""

import numpy as np

from calgrid.calibrators._logistic import RIDGE, LogisticFit, fit_held, fit_logistic, note
from calgrid.calibrators._maps import TopLabelMap, count, make_cuts, steps
from calgrid.calibrators._probabilities import Array, Head, History, Labels, sigmoid, top_label
from calgrid.calibrators.beta import top_log_probabilities
from calgrid.components.registry import register

#: slope and intercept of the map that changes nothing
IDENTITY = np.array([1.0, 0.0])


@register(
    source="Kumar, Liang, Ma, Verified Uncertainty Calibration, NeurIPS 2019; code "
    "p-lambda/verified_calibration, PlattBinnerTopCalibrator",
    keeps_argmax=False,
    parameters="n_bins + 2",
    limits={"n_bins": "[1, 1000000]"},
)
class ScalingBinning(TopLabelMap):
    """Scaling-binning of the confidence s: the mean of ``g = sigmoid(a ln(s / (1 - s)) + b)`` over
    the validation samples of its bin.

    a and b minimise the NLL of correctness by Newton's method; bins have equal counts. A mean of g
    varies less than the accuracy of a bin (``hb``), and the output has few values, so that its
    calibration error can be estimated. The code has this top-label form and one of each class; with
    many classes, nearly all samples of a class are in bins near 0, so only this form is here. As in
    the code, one sample gives a, b, bins and means; the paper's proof needs three. Ours: cuts are
    midway between confidences, not between values of g, which gives the same bins; if the NLL has
    no minimum, the penalty of ``beta`` holds g near s, with a warning; the other classes share the
    rest in proportion to their softmax, so the predicted class may change.

    ``fit_history``: ``slope`` a, ``intercept`` b, ``n_bins`` (ties can reduce the number of bins).

    Parameters
    ----------
    n_bins : number of bins; 10 in the authors' examples.
    """

    function = staticmethod(steps)

    n_bins: int = 10

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        correct = (predicted == labels).astype(np.float64)
        log_scores, log_rests = top_log_probabilities(logits)
        design = np.column_stack([log_scores - log_rests, np.ones_like(confidence)])

        def fitted(ridge: float) -> LogisticFit:
            # without penalty from 0: at the identity, saturated confidences have no curvature
            start = IDENTITY if ridge else np.zeros(2)
            return fit_logistic(design, correct, ridge * design.T @ design, start, start)

        fit = fit_held(fitted, RIDGE / len(labels) ** 2)
        self.points = make_cuts(confidence, self.n_bins, "quantile")
        counts = count(self.points, confidence, sigmoid(design @ fit.coefficients))
        self.accuracy = counts.correct / counts.count
        slope, intercept = fit.coefficients.tolist()
        history = {"slope": slope, "intercept": intercept, "n_bins": len(self.accuracy)}
        return {**history, **note(fit)}
