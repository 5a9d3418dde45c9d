"""Histogram binning of the confidence, applied to the predicted class."""

from typing import Literal

import numpy as np

from calgrid.calibrators._maps import TopLabelMap, count, make_cuts, smoothed_rate, steps
from calgrid.calibrators._probabilities import Array, Head, History, Labels, top_label
from calgrid.components.registry import register


@register(
    source="Zadrozny & Elkan, Obtaining Calibrated Probability Estimates from Decision Trees and "
    "Naive Bayesian Classifiers, ICML 2001",
    keeps_argmax=False,
    parameters="n_bins",
    limits={"n_bins": "[1, 1000000]", "prior_count": "[0, inf)"},
)
class TopLabelHistogramBinning(TopLabelMap):
    """Top-label histogram binning: the confidence becomes the smoothed accuracy of its bin.

    With n samples in a bin, n_1 of them correct, and s = ``prior_count``::

        q = (n_1 + s / 2) / (n + s)

    An empty bin gives its centre. The other classes share 1 - q in proportion to their softmax, so
    the predicted class may change. The original bins each class separately (``hb_ova``), with equal
    counts; common re-implementations use 10 or 15 bins of equal width and the raw accuracy, which
    is 0 or 1 in small bins and makes the NLL infinite. Default here: equal counts and Laplace's
    rule, s = 2.

    ``fit_history``: ``n_bins`` (ties can reduce the number of bins), ``n_empty``.

    Parameters
    ----------
    n_bins : number of bins.
    spacing : bins of equal counts (``quantile``) or equal width.
    prior_count : s, the weight of accuracy 1/2 in samples; 0 for the raw accuracy.
    """

    function = staticmethod(steps)

    n_bins: int = 15
    spacing: Literal["quantile", "width"] = "quantile"
    prior_count: float = 2.0

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        self.points = make_cuts(confidence, self.n_bins, self.spacing)
        counts = count(self.points, confidence, (predicted == labels).astype(np.float64))
        self.accuracy = smoothed_rate(counts, self.points, 0.5, self.prior_count)
        return {"n_bins": len(self.accuracy), "n_empty": int((counts.count == 0).sum())}
