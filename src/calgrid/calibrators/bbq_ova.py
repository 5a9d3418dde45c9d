"""Bayesian binning into quantiles of each class's probability, one class against the others."""

from calgrid.calibrators._maps import OneVsAllMap, steps
from calgrid.calibrators._probabilities import Array, Mask
from calgrid.calibrators.bbq import average_binnings
from calgrid.components.registry import register


@register(
    source="Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian "
    "Binning, AAAI 2015; code pakdaman/calibration, BBQ/build.m",
    keeps_argmax=False,
    parameters="<= 10 K N^(1/3) (5 N^(1/3) + 1)",
)
class BayesianBinningOneVsAll(OneVsAllMap):
    """One-vs-all BBQ, as in CalArena: the map of ``bbq`` for each class's probability, rows divided
    by their sums.

    A class without validation samples keeps its probability (ours).

    ``fit_history``: ``n_steps`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    function = staticmethod(steps)
    counted = "n_steps"

    def fit_map(self, scores: Array, hits: Mask) -> tuple[Array, Array]:
        """Return cuts and values for the scores ``(N,)`` of one class, and its samples."""
        cuts, rates, _ = average_binnings(scores, hits)
        return cuts, rates
