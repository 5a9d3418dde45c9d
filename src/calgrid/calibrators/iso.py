"""Isotonic regression, plain or centred: of correctness on confidence, of each class against the
others, of all classes together.
"""

import numpy as np
from scipy.optimize import isotonic_regression

from calgrid.calibrators._binning import distinct, lines
from calgrid.calibrators._maps import OneVsAllMap, TopLabelMap
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    Mask,
    is_top,
    namespace,
    never_certain,
    renormalised,
    softmax,
    top_label,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register

#: weight of the uncalibrated probability, which breaks ties of the map (as in the authors' code)
TIE_BREAK = 1e-9


def pool(scores: Array, correct: Mask) -> tuple[Array, Array, Array]:
    """Pool adjacent violators of scores ``(M,)`` and correctness, bool ``(M,)``.

    Scores closer than 1e-12 count as one. Returns the ascending distinct scores, the number of
    samples with each, and the non-decreasing share of correct ones there, float64 ``(P,)`` each.
    """
    order = np.argsort(scores, kind="stable")
    ordered, correct = scores[order], correct[order]
    del order  # M may be N K (all pairs of sample and class), so arrays are freed early
    first = np.flatnonzero(distinct(ordered))
    points, number = ordered[first], np.diff(first, append=len(ordered)).astype(np.float64)
    del ordered
    rates = np.add.reduceat(correct, first, dtype=np.float64) / number
    del correct, first
    return points, number, isotonic_regression(rates, weights=number).x


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
    id="iso",
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


def fit_centred(scores: Array, correct: Mask) -> tuple[Array, Array]:
    """Fit a map that is strictly increasing where values lie strictly between 0 and 1.

    A block of equal values becomes one point at the mean of its scores; blocks of value 0 or 1 keep
    both ends. Arguments and result are those of :func:`calgrid.calibrators.iso.fit_isotonic`.
    """
    points, number, values = pool(scores, correct)
    first = np.flatnonzero(np.diff(values, prepend=-1.0))
    last = np.append(first[1:], len(values)) - 1
    centres = np.add.reduceat(points * number, first) / np.add.reduceat(number, first)
    rates = values[first]
    certain = (rates == 0.0) | (rates == 1.0)
    flat = certain & (first < last)
    left = np.where(certain, points[first], centres)
    # a flat block has a second point at its right end
    places, after = np.concatenate([left, points[last[flat]]]), np.append(rates, rates[flat])
    order = np.argsort(places, kind="stable")
    return places[order], never_certain(after[order], len(correct))


@register(
    id="cir",
    source="Oron & Flournoy, Centered Isotonic Regression: Point and Interval Estimation for "
    "Dose-Response Studies, Statistics in Biopharmaceutical Research 9, 2017",
    keeps_argmax=False,
    parameters="<= N",
)
class CentredIsotonicRegression(TopLabelIsotonic):
    """Centred isotonic regression (CIR) from top-label confidence to accuracy.

    As ``iso``, but each block of equal values is one point at its mean confidence, so that the map
    rises instead of jumping; blocks of only correct or only wrong samples stay flat, and so do both
    ends. ``cir_ova`` is the form of CalArena.

    ``fit_history`` is that of ``iso``.
    """

    fit_map = staticmethod(fit_centred)


@register(
    id="iso_ova",
    source="Zadrozny & Elkan, Transforming Classifier Scores into Accurate Multiclass Probability "
    "Estimates, KDD 2002",
    keeps_argmax=False,
    parameters="<= K N",
)
class IsotonicRegressionOneVsAll(OneVsAllMap):
    """One-vs-all isotonic regression: a non-decreasing map for each class's probability, rows
    divided by their sums.

    The maps are linear between their points and constant outside. Their values are kept in ``[1 /
    (N + 1), N / (N + 1)]`` (ours): probabilities of 0 would make the NLL infinite. If K is close to
    N, the sum of these minima is not small. A class without validation samples keeps its
    probability.

    Without these bounds each map is that of scikit-learn's ``IsotonicRegression`` in 64 bits; in 32
    bits it merges scores closer than 1e-6.

    ``fit_history``: ``n_points`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    counted = "n_points"
    fit_map = staticmethod(fit_isotonic)


@register(
    id="cir_ova",
    source="Oron & Flournoy, Centered Isotonic Regression: Point and Interval Estimation for "
    "Dose-Response Studies, Statistics in Biopharmaceutical Research 9, 2017",
    keeps_argmax=False,
    parameters="<= K N",
)
class CentredIsotonicRegressionOneVsAll(IsotonicRegressionOneVsAll):
    """One-vs-all centred isotonic regression, as in CalArena: ``iso_ova`` with the maps of ``cir``.

    ``fit_history`` is that of ``iso_ova``.
    """

    fit_map = staticmethod(fit_centred)


@register(
    id="irm",
    source="Zhang, Kailkhura, Han, Mix-n-Match: Ensemble and Compositional Methods for Uncertainty "
    "Calibration in Deep Learning, ICML 2020; code zhang64-llnl/Mix-n-Match-Calibration, "
    "util_calibration.py",
    keeps_argmax=True,
    parameters="<= N K",
)
class MultiClassIsotonicRegression(Calibrator):
    """IRM, accuracy-preserving isotonic regression for many classes.

    One isotonic regression g on all N K pairs ``(p_ik, 1[y_i = k])``; the output is ``g(p_k) + 1e-9
    p_k`` divided by its sum over classes, as in the authors' code, which keeps the order of the
    classes. Values of g are kept in ``[1 / (N K + 1), N K / (N K + 1)]``: the zeros of the code
    make the NLL infinite.

    ``fit_history``: ``n_points`` (points that define the map).
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        correct = np.zeros(logits.shape, dtype=bool)
        correct[np.arange(len(labels)), labels] = True
        self.scores, self.rates = fit_isotonic(softmax(logits).ravel(), correct.ravel())
        return {"n_points": len(self.scores)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        probabilities = softmax(logits)
        mapped = lines(probabilities, self.scores, self.rates) + TIE_BREAK * probabilities
        # interpolation may round a value above its right neighbour
        xp = namespace(logits)
        mapped = xp.where(is_top(logits), xp.amax(mapped, axis=1, keepdims=True), mapped)
        return renormalised(mapped, probabilities)
