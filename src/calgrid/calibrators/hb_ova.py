"""Histogram binning of each class's probability, one class against the others."""

from typing import Any, Literal

import numpy as np

from calgrid.calibrators._binning import bin_of, count, make_cuts, smoothed_rate
from calgrid.calibrators._probabilities import map_classes, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register


@register(
    source="Zadrozny & Elkan, Obtaining Calibrated Probability Estimates from Decision Trees and "
    "Naive Bayesian Classifiers, ICML 2001; Guo, Pleiss, Sun, Weinberger, ICML 2017",
    keeps_argmax=False,
    parameters="K n_bins",
    limits={"n_bins": "[1, 1000000]", "prior_count": "[0, inf)"},
)
class HistogramBinning(Calibrator):
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

    def __init__(
        self,
        *,
        n_bins: int = 15,
        spacing: Literal["quantile", "width"] = "width",
        prior_count: float = 2.0,
    ) -> None:
        super().__init__()
        self.n_bins = n_bins
        self.spacing = spacing
        self.prior_count = prior_count

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        # classes with fewer bins because of ties are padded with unused bins, cut at infinity
        self.cuts = np.full((len(self.classes), self.n_bins - 1), np.inf)
        self.rates = np.zeros((len(self.classes), self.n_bins))
        for position, label in enumerate(self.classes):
            scores = np.ascontiguousarray(probabilities[:, label])
            cuts = make_cuts(scores, self.n_bins, self.spacing)
            counts = count(cuts, scores, (labels == label).astype(np.float64))
            mean = counts.scores / np.maximum(counts.n, 1.0)
            self.cuts[position, : len(cuts)] = cuts
            self.rates[position, : len(cuts) + 1] = smoothed_rate(
                counts, cuts, mean, self.prior_count
            )
        return {"n_absent": logits.shape[1] - len(self.classes)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        def rate(position: int, scores: Array) -> Array:
            return self.rates[position, bin_of(self.cuts[position], scores)]

        return map_classes(logits, self.classes, rate)

    def _module(self, maps: Any) -> Any:
        return maps.per_class(maps.steps, self.classes, self.n_classes, self.cuts, self.rates)
