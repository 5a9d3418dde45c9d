"""Bayesian binning into quantiles of each class's probability, one class against the others."""

from typing import Any

import numpy as np

from calgrid.calibrators._binning import bin_of
from calgrid.calibrators._probabilities import map_classes, softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.calibrators.bbq import average_binnings
from calgrid.components.registry import register


@register(
    source="Naeini, Cooper, Hauskrecht, Obtaining Well Calibrated Probabilities Using Bayesian "
    "Binning, AAAI 2015; code pakdaman/calibration, BBQ/build.m",
    keeps_argmax=False,
    parameters="<= 10 K N^(1/3) (5 N^(1/3) + 1)",
)
class BayesianBinningOneVsAll(Calibrator):
    """One-vs-all BBQ, as in CalArena: the map of ``bbq`` for each class's probability, rows divided
    by their sums.

    A class without validation samples keeps its probability (ours).

    ``fit_history``: ``n_steps`` (of all maps), ``n_absent`` (classes without validation samples).
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        probabilities = softmax(logits)
        self.classes = np.unique(labels)
        maps = [average_binnings(probabilities[:, k], labels == k) for k in self.classes]
        self.cuts = np.concatenate([cuts for cuts, _, _ in maps])
        self.rates = np.concatenate([rates for _, rates, _ in maps])
        self.ends = np.cumsum([len(rates) for _, rates, _ in maps])
        return {"n_steps": len(self.rates), "n_absent": logits.shape[1] - len(self.classes)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        begins = np.concatenate([[0], self.ends[:-1]])

        def rate(position: int, scores: Array) -> Array:
            begin, end = begins[position], self.ends[position]
            # each earlier map has one cut less than values
            cuts = self.cuts[begin - position : end - position - 1]
            return self.rates[begin:end][bin_of(cuts, scores)]

        return map_classes(logits, self.classes, rate)

    def _module(self, maps: Any) -> Any:
        cuts = np.split(self.cuts, self.ends[:-1] - np.arange(1, len(self.ends)))
        rates = np.split(self.rates, self.ends[:-1])
        return maps.per_class(maps.steps, self.classes, self.n_classes, cuts, rates)
