"""I-Max: bins of all classes' log odds that keep most information about the labels."""

import numpy as np

from calgrid.calibrators._maps import count, distinct, smoothed_rate, steps
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    log_probabilities,
    renormalised,
    sigmoid,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register

#: alternations of edges and representatives
STEPS = 200
#: of the start: others change rates in the third digit
SEED = 0


def spread_start(log_odds: Array, n_bins: int, generator: np.random.Generator) -> Array:
    """Return at most ``n_bins`` ascending representatives drawn from log odds ``(M,)`` as k-means++
    does: each with probability proportional to the squared distance from the nearest before; none
    that differ by rounding.
    """
    chosen = [float(generator.choice(log_odds))]
    nearest = np.full(len(log_odds), np.inf)
    for _ in range(n_bins - 1):
        nearest = np.minimum(nearest, np.square(log_odds - chosen[-1]))
        total = np.cumsum(nearest)
        if total[-1] == 0.0:
            break
        place = np.searchsorted(total, generator.uniform(high=total[-1]), side="right")
        chosen.append(float(log_odds[place]))
    ordered = np.unique(chosen)
    return ordered[distinct(ordered)]


def best_edges(representatives: Array) -> Array:
    """Return the edges ``(B - 1,)`` of most information for ascending representatives ``(B,)``:
    ``ln [(sp(r') - sp(r)) / (sp(-r) - sp(-r'))]`` with ``sp(x) = ln (1 + exp(x))``.
    """
    rising = np.diff(np.logaddexp(0.0, representatives))
    falling = -np.diff(np.logaddexp(0.0, -representatives))
    return np.log(rising) - np.log(falling)


def maximise_information(ordered: Array, start: Array) -> Array:
    """Alternate between edges and representatives (the log odds of the mean probability of a bin)
    until they stay, at most 200 times; return the edges.

    Parameters
    ----------
    ordered : ascending log odds ``(M,)``.
    start : ascending representatives; those of empty bins are dropped.
    """
    # sums from both ends, because those of small values keep their precision
    below = np.append(0.0, np.cumsum(sigmoid(ordered)))
    above = np.append(np.cumsum(sigmoid(-ordered)[::-1])[::-1], 0.0)
    representatives, ends = start, np.empty(0, dtype=np.intp)
    for _ in range(STEPS):
        edges = best_edges(representatives)
        inner = np.searchsorted(ordered, edges, side="right")
        before, ends = ends, np.unique([0, *inner, len(ordered)])
        if np.array_equal(before, ends):
            break
        representatives = np.log(np.diff(below[ends])) - np.log(-np.diff(above[ends]))
        representatives = representatives[distinct(representatives)]
    return edges


@register(
    source="Patel, Beluch, Yang, Pfeiffer, Zhang, Multi-Class Uncertainty Calibration via Mutual "
    "Information Maximization-based Binning, ICLR 2021",
    keeps_argmax=False,
    parameters="2 n_bins",
    limits={"n_bins": "[1, 1000]", "prior_count": "[0, inf)"},
)
class InformationMaximizingBinning(Calibrator):
    """I-Max binning, shared by all classes: a probability becomes the smoothed frequency of labels
    in its bin.

    The log odds of all classes and samples are pooled; the edges of the bins maximise the mutual
    information between labels and bins, if labels are drawn from the probabilities of the bins'
    representatives, in turn with these (``best_edges``), 200 times at most, from one start drawn as
    in k-means++ (with distances of log odds). With n pooled samples in a bin, n_1 of them labels, m
    the mean probability there, and s = ``prior_count``::

        q = (n_1 + s m) / (n + s)

    and rows are divided by their sums. The paper has s = 0, which makes the NLL infinite where a
    bin has no label, and no division; its form with bins of single classes is not here. Classes in
    one bin are equal, so the predicted class may change.

    ``fit_history``: ``n_bins`` (empty ones are dropped).

    Parameters
    ----------
    n_bins : number of bins.
    prior_count : s, the weight of the uncalibrated probability in samples.
    """

    n_bins: int = 15
    prior_count: float = 2.0

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        possible = logits > -np.inf
        scores, rests = log_probabilities(logits)
        ordered = np.sort((scores - rests)[possible])
        start = spread_start(ordered, self.n_bins, np.random.default_rng(SEED))
        edges = maximise_information(ordered, start)
        self.cuts = np.unique(sigmoid(edges))
        hits = np.arange(logits.shape[1]) == labels[:, None]
        counts = count(self.cuts, softmax(logits)[possible], hits[possible].astype(np.float64))
        mean = counts.confidence / np.maximum(counts.count, 1.0)
        self.rates = smoothed_rate(counts, self.cuts, mean, self.prior_count)
        return {"n_bins": len(self.rates)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        probabilities = softmax(logits)
        return renormalised(steps(probabilities, self.cuts, self.rates), probabilities)
