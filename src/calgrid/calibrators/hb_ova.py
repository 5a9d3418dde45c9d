"""Histogram binning of each class's probability, one class against the others."""

from typing import Literal

import numpy as np

from calgrid.calibrators._maps import OneVsAllMap, count, make_cuts, smoothed_rate, steps
from calgrid.calibrators._probabilities import Array, Mask
from calgrid.components.registry import register


@register(
    source="Zadrozny & Elkan, Obtaining Calibrated Probability Estimates from Decision Trees and "
    "Naive Bayesian Classifiers, ICML 2001; Guo, Pleiss, Sun, Weinberger, ICML 2017",
    keeps_argmax=False,
    parameters="K n_bins",
    limits={"n_bins": "[1, 1000000]", "prior_count": "[0, inf)"},
)
class HistogramBinning(OneVsAllMap):
    """One-vs-all histogram binning: each class's probability becomes the smoothed frequency of the
    class in its bin.

    With n samples in a bin, n_1 of the class, m the mean probability there, and s =
    ``prior_count``::

        q = (n_1 + s m) / (n + s)

    and rows are divided by their sums. An empty bin gives its centre, a row of zeros is replaced by
    its softmax, and a class without validation samples keeps its probability. Re-implementations
    use the raw frequency (s = 0), which is 0 or 1 in small bins; s > 0 is ours. Poor for many
    classes, because most samples share the first bin.

    ``fit_history``: ``n_absent`` (classes without validation samples).

    Parameters
    ----------
    n_bins : number of bins per class.
    spacing : bins of equal width (because most probabilities of a class are near 0), or of equal
        counts (``quantile``).
    prior_count : s, the weight of the uncalibrated probability in samples.
    """

    function = staticmethod(steps)

    n_bins: int = 15
    spacing: Literal["quantile", "width"] = "width"
    prior_count: float = 2.0

    def fit_map(self, scores: Array, hits: Mask) -> tuple[Array, Array]:
        """Return cuts and values for the scores ``(N,)`` of one class, and its samples."""
        cuts = make_cuts(scores, self.n_bins, self.spacing)
        counts = count(cuts, scores, hits.astype(np.float64))
        mean = counts.confidence / np.maximum(counts.count, 1.0)
        return cuts, smoothed_rate(counts, cuts, mean, self.prior_count)
