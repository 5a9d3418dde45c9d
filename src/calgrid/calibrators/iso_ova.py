"""Isotonic regression of each class's probability, one class against the others."""

from calgrid.calibrators._maps import OneVsAllMap
from calgrid.calibrators.iso import fit_isotonic
from calgrid.components.registry import register


@register(
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

    Without these bounds each map equals scikit-learn's ``IsotonicRegression`` in 64 bits; in 32
    bits it merges scores closer than 1e-6.

    ``fit_history``: ``n_points`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    counted = "n_points"
    fit_map = staticmethod(fit_isotonic)
