"""Isotonic regression of correctness on confidence, applied to the predicted class."""

import numpy as np
from scipy.optimize import isotonic_regression

from calgrid.calibrators._maps import TopLabelMap, without_ties
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    never_certain,
    top_label,
)
from calgrid.components.registry import register


def pool(scores: Array, correct: Mask) -> tuple[Array, Array, Array]:
    """Pool adjacent violators of scores ``(M,)`` and correctness, bool ``(M,)``.

    Returns the ascending distinct scores and the number of samples with each, as
    :func:`~calgrid.calibrators._maps.without_ties`, and the non-decreasing share of correct ones
    there, float64 ``(P,)`` each.
    """
    points, number, right = without_ties(scores, correct)
    return points, number, isotonic_regression(right / number, weights=number).x


def fit_isotonic(scores: Array, correct: Mask) -> tuple[Array, Array]:
    """Fit a non-decreasing map from scores to the share of correct predictions.

    Read the map with ``np.interp``: linear between the points, constant outside. Returns the
    ascending scores ``(P,)`` and values ``(P,)``, kept in ``[1 / (M + 1), M / (M + 1)]``.

    Parameters
    ----------
    scores : ``(M,)``. correct : bool ``(M,)``.
    """
    points, _, values = pool(scores, correct)
    # only the ends of a block of equal values are needed
    bends = np.ones(len(points), dtype=bool)
    bends[1:-1] = (values[1:-1] != values[:-2]) | (values[1:-1] != values[2:])
    return points[bends], never_certain(values[bends], len(correct))


@register(
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability "
    "Estimates, KDD 2002",
    keeps_argmax=False,
    parameters="<= N",
)
class TopLabelIsotonic(TopLabelMap):
    """Isotonic regression (pool adjacent violators) from top-label confidence to accuracy.

    The map is linear between the fitted points and constant outside. Its values are kept in ``[1 /
    (N + 1), N / (N + 1)]``: blocks of only correct or only wrong samples would otherwise give
    probability 0 or 1 and an infinite NLL. The other classes share the rest in proportion to their
    softmax, so the predicted class may change.

    ``fit_history``: ``n_points`` (points that define the map), ``floor`` (1 / (N + 1)).
    """

    #: fits the map: scores and correctness -> points and values
    fit_map = staticmethod(fit_isotonic)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        predicted, confidence = top_label(logits)
        self.points, self.accuracy = self.fit_map(confidence, predicted == labels)
        return {"n_points": len(self.points), "floor": 1.0 / (len(labels) + 1)}
