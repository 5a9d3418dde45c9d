"""Beta calibration of the top-label confidence."""

import numpy as np

from calgrid.calibrators._logistic import RIDGE, LogisticFit, fit_held, fit_logistic, note
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    log_probabilities,
    sigmoid,
    take,
    top_label_map,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register

#: free columns of the design (ln s, -ln (1 - s), 1), in the order in which they are tried
FREE = ([0, 1, 2], [1, 2], [0, 2], [2])
#: coefficients of the map that changes nothing
IDENTITY = np.array([1.0, 1.0, 0.0])


def fit_beta(log_score: Array, log_rest: Array, target: Array) -> LogisticFit:
    """Return a, b >= 0 and c of the lowest NLL of ``sigmoid(a ln s - b ln (1 - s) + c)``.

    If there is no minimum, because s separates the labels, a penalty is added: 0.1 / N times the
    mean squared distance of the log odds from the log odds of s.

    Parameters
    ----------
    log_score, log_rest : ln s and ln (1 - s), ``(N,)``. target : 1.0 or 0.0, ``(N,)``.
    """
    design = np.column_stack([log_score, -log_rest, np.ones_like(log_score)])
    odds = design @ IDENTITY

    def lowest(ridge: float) -> LogisticFit:
        found: list[tuple[float, LogisticFit]] = []
        for free in FREE:
            part, size = design[:, free], len(free)
            centre = start = np.zeros(size)
            if ridge:
                whole = size == 3
                centre = start = IDENTITY if whole else np.linalg.lstsq(part, odds, rcond=None)[0]
            fit = fit_logistic(part, target, ridge / len(odds) * part.T @ part, start, centre)
            coefficients = np.zeros(3)
            coefficients[free] = fit.coefficients
            if coefficients[0] >= 0.0 and coefficients[1] >= 0.0:
                # the penalty is least at the centre, where it equals the rest's
                rest = ridge * float(np.square(odds - part @ centre).mean()) if ridge else 0.0
                found.append((fit.loss + rest, fit._replace(coefficients=coefficients)))
            if size == 3 and found:
                break  # no bound matters
        return min(found, key=lambda each: each[0])[1]

    return fit_held(lowest, RIDGE / len(target))


def beta_map(coefficients: Array, log_score: Array, log_rest: Array) -> Array:
    """Return ``sigmoid(a ln s - b ln (1 - s) + c)`` ``(N,)``."""
    a, b, c = coefficients
    return sigmoid(a * log_score - b * log_rest + c)


@register(
    source="Kull, Silva Filho, Flach, Beta calibration: a well-founded and easily implemented "
    "improvement on logistic calibration for binary classifiers, AISTATS 2017; code betacal",
    keeps_argmax=False,
    parameters="3",
)
class BetaCalibration(Calibrator):
    """Top-label beta calibration, ``q = sigmoid(a ln s - b ln (1 - s) + c)`` of the confidence s.

    a, b >= 0 and c minimise the NLL of correctness, a convex problem, by Newton's method; ln s and
    ln (1 - s) are at least the ln of the smallest normal float32, -87. The
    published code drops a negative coefficient and refits the other, which is the same minimum; its
    solver stops earlier (third digit on ten samples). ``a = b = 1, c = 0`` is the identity. If the
    NLL has no minimum, because all predictions are right or the confidence separates the right ones
    from the others, 0.1 / N times the mean squared distance of the log odds of q from those of s is
    added, with a warning (ours): q of N right predictions with equal s is then about ``1 - 1 / N``.
    ``beta_ova`` with two classes is the published binary form. The other classes share the rest in
    proportion to their softmax, so the predicted class may change.

    ``fit_history``: ``a``, ``b``, ``c``.
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        correct = (logits.argmax(axis=1) == labels).astype(np.float64)
        fit = fit_beta(*top_log_probabilities(logits), correct)
        self.coefficients = fit.coefficients
        return {**dict(zip("abc", fit.coefficients.tolist(), strict=True)), **note(fit)}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        target = beta_map(self.coefficients, *top_log_probabilities(logits))
        return top_label_map(logits, target)


def top_log_probabilities(logits: Array) -> tuple[Array, Array]:
    """Return ln s and ln (1 - s) ``(N,)`` of the confidence."""
    log_scores, log_rests = log_probabilities(logits)
    top = logits.argmax(axis=1)
    return take(log_scores, top), take(log_rests, top)
