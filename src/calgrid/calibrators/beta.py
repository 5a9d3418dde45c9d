"""Beta calibration of the top-label confidence."""

from typing import Any

import numpy as np

from calgrid.calibrators._logistic import LogisticFit, fit_logistic
from calgrid.calibrators._network import sigmoid
from calgrid.calibrators._probabilities import (
    LOG_TINY,
    NOTHING_LEFT,
    log_probabilities,
    top_label_map,
)
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register

#: free columns of the design (ln s, -ln (1 - s), 1), in the order in which they are tried
FREE = ([0, 1, 2], [1, 2], [0, 2], [2])


def fit_beta(log_score: Array, log_rest: Array, target: Array) -> Array:
    """Return a, b >= 0 and c, ``(3,)``, of the lowest NLL of ``sigmoid(a ln s - b ln (1 - s) +
    c)``.

    Parameters
    ----------
    log_score, log_rest : ln s and ln (1 - s), ``(N,)``. target : 1.0 or 0.0, ``(N,)``.
    """
    design = np.column_stack([log_score, -log_rest, np.ones_like(log_score)])
    found: list[tuple[float, Array]] = []
    for free in FREE:
        size = len(free)
        fit: LogisticFit = fit_logistic(
            design[:, free], target, np.zeros((size, size)), np.zeros(size)
        )
        coefficients = np.zeros(3)
        coefficients[free] = fit.coefficients
        if coefficients[0] >= 0.0 and coefficients[1] >= 0.0:
            found.append((fit.loss, coefficients))
        if size == 3 and found:
            break  # no bound matters
    return min(found, key=lambda each: each[0])[1]


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

    a, b >= 0 and c minimise the NLL of correctness, a convex problem, by Newton's method. The
    published code drops a negative coefficient and refits the other, which is the same minimum; its
    solver stops earlier (third digit on ten samples). ``a = b = 1, c = 0`` is the identity.
    ``beta_ova`` with two classes is the published binary form. The other classes share the rest in
    proportion to their softmax, so the predicted class may change.

    ``fit_history``: ``a``, ``b``, ``c``.
    """

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        correct = (logits.argmax(axis=1) == labels).astype(np.float64)
        self.coefficients = fit_beta(*_top(logits), correct)
        return dict(zip("abc", self.coefficients.tolist(), strict=True))

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return top_label_map(logits, beta_map(self.coefficients, *_top(logits)))

    def _module(self, maps: Any) -> Any:
        return maps.TopBeta(self.coefficients, LOG_TINY, NOTHING_LEFT)


def _top(logits: Array) -> tuple[Array, Array]:
    """Return ln s and ln (1 - s) ``(N,)`` of the confidence."""
    log_scores, log_rests = log_probabilities(logits)
    rows, top = np.arange(len(logits)), logits.argmax(axis=1)
    return log_scores[rows, top], log_rests[rows, top]
