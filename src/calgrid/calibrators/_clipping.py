"""Search of the threshold at which features or logits are clipped."""

from collections.abc import Callable
from typing import ClassVar, Literal

import numpy as np

from calgrid.calibrators._probabilities import Array, History, Labels
from calgrid.calibrators.base import SoftmaxCalibrator, end_of_grid
from calgrid.metrics import Output, Predictions, accuracy, ece, nll

#: thresholds of the second search, between the neighbours of the best one of the first
FINE = 32
N_BINS = 15


class Clipping(SoftmaxCalibrator):
    """Base of calibrators that clip at the threshold of lowest validation error.

    Parameters
    ----------
    criterion : criterion that the threshold minimises.
    """

    #: minimum accuracy, as a share of that without clipping
    kept_accuracy: ClassVar[float]

    criterion: Literal["ece", "nll"] = "ece"

    def _search(self, clipped: Callable[[float], Array], labels: Labels, coarse: Array) -> History:
        """Set ``threshold`` to the best of ascending ``coarse`` ones and of finer ones, infinite if
        none keeps the accuracy, and return the ``fit_history``.

        Parameters
        ----------
        clipped : maps a threshold to scores ``(N, K)`` with row maximum 0.
        """

        def trial(threshold: float) -> tuple[float, float, float]:
            """Objective, minus the threshold (of equal objectives the largest is taken), and
            accuracy.
            """
            output = Output.of_scores(clipped(threshold))
            predictions = Predictions(output.probs, labels, output.logs)
            criteria = {"ece": ece, "nll": nll}
            objective = criteria[self.criterion](predictions, labels, N_BINS)
            return objective, -float(threshold), accuracy(predictions, labels)

        unclipped = trial(np.inf)[2]
        least = self.kept_accuracy * unclipped
        trials = [trial(c) for c in coarse]
        accurate = [each for each in trials if each[2] > least]
        if not accurate:
            self.threshold = np.inf
            return {
                "n_tried": len(coarse),
                "accuracy_unclipped": unclipped,
                "accuracy": unclipped,
                "clipped": False,
            }
        edges = np.concatenate([[0.0], coarse, coarse[-1:]])
        below = int(np.searchsorted(coarse, -min(accurate)[1]))
        fine = np.linspace(edges[below], edges[below + 2], FINE + 2)[1:-1]
        trials += [trial(c) for c in fine]
        objective, minus_threshold, kept = min(each for each in trials if each[2] > least)
        self.threshold = -minus_threshold
        grid = (fine[0], np.inf)
        return {
            "n_tried": len(trials),
            "accuracy_unclipped": unclipped,
            "accuracy": kept,
            "clipped": True,
            "threshold": self.threshold,
            "objective": objective,
            "warnings": end_of_grid("threshold", self.threshold, grid) if below == 0 else [],
        }
