"""TvA temperature scaling: one temperature, fitted to the correctness of predictions."""

import numpy as np

from calgrid.calibrators._objectives import log_rest, margin_and_excess
from calgrid.calibrators._probabilities import Array, Labels, sigmoid, softplus
from calgrid.calibrators._temperature import Objective, TemperatureFit, lowest_beta
from calgrid.calibrators.ts import TemperatureScaling
from calgrid.components.registry import register
from calgrid.metrics.moments import row_blocks


def top_versus_all(logits: Array, labels: Labels) -> tuple[Objective, int]:
    """Return the binary cross-entropy of confidence against correctness as a function of beta, and
    its samples.

    It is not necessarily convex. Samples with one possible class have confidence 1 at every
    temperature and are left out.
    """
    varies = (logits > -np.inf).sum(axis=1) > 1
    used = logits if varies.all() else logits[varies]
    margins, excesses = margin_and_excess(used)
    correct = used.argmax(axis=1) == labels[varies]

    def objective(beta: float, rows: slice) -> tuple[float, float]:
        margin, excess, is_correct = margins[rows], excesses[rows], correct[rows]
        rest, d_rest = np.empty((2, len(margin)))
        for block in row_blocks(*excess.shape):
            rest[block], d_rest[block] = log_rest(excess[block], np.array([beta]))
        score, n_samples = beta * margin - rest, max(1, len(margin))
        loss = softplus(np.where(is_correct, -score, score)).sum()
        slope = ((sigmoid(score) - is_correct) * (margin - d_rest)).sum()
        return float(loss) / n_samples, float(slope) / n_samples

    return objective, len(correct)


@register(
    source="Le Coz, Herbin, Adjed, Confidence Calibration of Classifiers with Many Classes, "
    "NeurIPS 2024",
    keeps_argmax=True,
    parameters="1",
)
class TopVersusAllTemperature(TemperatureScaling):
    """Temperature scaling by the top-versus-all loss.

    ``softmax(z / T)`` with the T of lowest binary cross-entropy of the confidence against the
    correctness of the prediction. The authors' code (allglc/tva-calibration) runs Adam on T, from
    1.5, for 200 epochs with step 1e-3; here a scan and a root search find the minimum over T from
    0.05 to 100 in units of the spread of the logits.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (nats), ``at_lower_bound``,
    ``at_upper_bound``.
    """

    def _search(self, logits: Array, labels: Labels) -> TemperatureFit:
        return lowest_beta(*top_versus_all(logits, labels), self._scale)
