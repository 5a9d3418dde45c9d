"""Bayesian binning into quantiles: an average over binnings, applied to the predicted class."""

from collections.abc import Iterable, Iterator

import numpy as np
from scipy.special import betaln

from calgrid.calibrators._maps import TopLabelMap, centres, distinct, equal_count_cuts, steps
from calgrid.calibrators._probabilities import Array, Head, History, Labels, Mask, top_label
from calgrid.components.registry import register

#: weight of the prior of a bin in samples, and the range of its mean, in the score of a binning
PRIOR_COUNT = 2.0
PRIOR_RANGE = (0.005, 0.995)


def binning_sizes(n_samples: int) -> range:
    """Return the numbers of bins of the averaged binnings."""
    root = float(np.cbrt(n_samples))
    return range(max(1, int(root / 10)), min(-(-n_samples // 5), int(np.ceil(10 * root))) + 1)


def binnings(
    scores: Array, correct: Array, sizes: Iterable[int]
) -> Iterator[tuple[Array, Array, float]]:
    """Yield cuts ``(B - 1,)``, values ``(B,)`` and log marginal likelihood of the equal-count
    binning of each size B.

    Each costs time proportional to B. Scores and correct, 1.0 or 0.0, are ``(N,)``.
    """
    order = np.argsort(scores, kind="stable")
    ordered, correct = scores[order], correct[order]
    first = np.flatnonzero(distinct(ordered))
    sum_correct = np.concatenate([[0.0], np.cumsum(correct)])
    sum_scores = np.concatenate([[0.0], np.cumsum(correct * ordered)])
    for n_bins in sizes:
        cuts = equal_count_cuts(ordered, n_bins, first)
        ends = np.concatenate([[0], np.searchsorted(ordered, cuts, side="right"), [len(ordered)]])
        n, n1, score1 = np.diff(ends), np.diff(sum_correct[ends]), np.diff(sum_scores[ends])
        middle = centres(cuts)
        values = (n1 + (score1 + middle) / (n1 + 1.0)) / (n + 1.0)
        yes = PRIOR_COUNT * np.clip(middle, *PRIOR_RANGE)
        no = PRIOR_COUNT - yes
        yield cuts, values, float((betaln(n1 + yes, n - n1 + no) - betaln(yes, no)).sum())


def average_binnings(scores: Array, correct: Mask) -> tuple[Array, Array, int]:
    """Return cuts ``(S - 1,)`` and values ``(S,)`` of the average over all sizes, a step function,
    and the size of the largest weight.

    Scores and correctness are ``(N,)``.
    """
    sizes = binning_sizes(len(scores))
    cuts, values, likelihoods = zip(
        *binnings(scores, correct.astype(np.float64), sizes), strict=True
    )
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    weights /= weights.sum()
    # the steps of the average are the weighted steps of all binnings at their cuts
    rises = np.concatenate(
        [weight * np.diff(value) for weight, value in zip(weights, values, strict=True)]
    )
    places, index = np.unique(np.concatenate(cuts), return_inverse=True)
    first = weights @ [value[0] for value in values]
    steps = first + np.cumsum(np.bincount(index, rises, len(places)))
    averaged = np.clip(np.concatenate([[first], steps]), 0.0, 1.0)
    return places, averaged, sizes[int(np.argmax(likelihoods))]


@register(
    source="Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian "
    "Binning, AAAI 2015; code pakdaman/calibration, BBQ/build.m",
    keeps_argmax=False,
    parameters="<= 10 N^(1/3) (5 N^(1/3) + 1)",
)
class BayesianBinningIntoQuantiles(TopLabelMap):
    """Top-label BBQ: average of equal-count binnings of the confidence, weighted by marginal
    likelihood.

    All numbers of bins from ``max(1, floor(N^(1/3) / 10))`` to ``min(ceil(N / 5), ceil(10
    N^(1/3)))`` are averaged. With n samples in a bin b, n_1 correct, n_0 wrong, S the sum of the
    confidences of the correct ones, c the centre, pi the centre clipped to [0.005, 0.995], and q
    the value of the bin::

        ln w = sum_b (ln B(n_1 + 2 pi, n_0 + 2 (1 - pi)) - ln B(2 pi, 2 (1 - pi)))
        q = (n_1 + p_0) / (n + 1)
        p_0 = (S + c) / (n_1 + 1)

    with B the beta function and weights proportional to w. This is the authors' code; the paper's
    values are posterior means under the prior of the score. Two details differ: we do not prune
    models of small weight (elbow rule, the code's default), and the remainder of N over the bins is
    spread, not put into the last bin. Equal confidences are never separated.

    The average is stored as one step function. The other classes share the rest in proportion to
    their softmax, so the predicted class may change.

    ``fit_history``: ``n_models``, ``best_n_bins`` (bins of the model with the largest weight,
    before ties merge some), ``n_steps`` (of the averaged function).
    """

    function = staticmethod(steps)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        self.points, self.accuracy, best = average_binnings(confidence, predicted == labels)
        return {
            "n_models": len(binning_sizes(len(labels))),
            "best_n_bins": best,
            "n_steps": len(self.accuracy),
        }
