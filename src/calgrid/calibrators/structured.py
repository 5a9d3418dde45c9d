"""Smoothed temperature scaling, and structured scaling of its ln p near the identity."""

import numpy as np

from calgrid.calibrators._linear import LinearMap, check_classes, fit_linear
from calgrid.calibrators._probabilities import (
    LOG_TINY,
    Array,
    Head,
    History,
    Labels,
    by_blocks,
    namespace,
    softmax,
)
from calgrid.calibrators._temperature import fit_temperature
from calgrid.calibrators.base import Calibrator, SoftmaxCalibrator
from calgrid.components.registry import register


def fit_smoothed(logits: Array, labels: Labels, identity: float) -> tuple[Array, History]:
    """Return beta of lowest NLL and epsilon = 1 / (N + 1) for :func:`smoothed`, and the
    ``fit_history``; ``identity`` is that of :func:`fit_temperature`.
    """
    fit = fit_temperature(logits, labels, identity)
    epsilon = 1.0 / (len(labels) + 1)
    return np.array([fit.beta, epsilon]), {**fit.history(), "epsilon": epsilon}


def smoothed(logits: Array, beta: float, epsilon: float) -> Array:
    """Return ``(1 - epsilon) softmax(beta z) + epsilon / K`` ``(N, K)`` of logits whose row maximum
    is 0.
    """
    mixture = softmax(logits * beta)
    mixture *= 1.0 - epsilon
    mixture += epsilon / logits.shape[1]
    return mixture


@register(
    id="ts_mix",
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv "
    "2511.03685; probmetrics",
    keeps_argmax=True,
    parameters="1",
)
class SmoothedTemperatureScaling(Calibrator):
    """Temperature scaling with Laplace smoothing, ``(1 - e) softmax(z / T) + e / K`` with ``e = 1 /
    (N + 1)``.

    T is that of lowest validation NLL before the smoothing; N is the number of validation samples.
    The NLL of a test sample is at most ``ln(K (N + 1))``. A class whose logit is -inf gets ``e /
    K`` too.

    ``fit_history``: that of ``ts``, and ``epsilon``.
    """

    scale_free = True
    maps_impossible = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        (self.beta, self.epsilon), history = fit_smoothed(logits, labels, self._scale)
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return smoothed(logits, self.beta, self.epsilon)


@register(
    id="svs",
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv "
    "2511.03685; probmetrics",
    keeps_argmax=False,
    parameters="2K + 1",
    limits={"ridge": "(0, inf)"},
)
class StructuredVectorScaling(SoftmaxCalibrator):
    """Structured vector scaling (SVS), ``softmax((1 + v) * x + b)`` with x = ln p after ``ts_mix``,
    also for a class whose logit is -inf.

    ``mean NLL + K/N (sum v^2 + sum b^2)`` is minimised from v = b = 0; it is strictly convex. x is
    bounded below by the ln of the smallest normal float32. The penalty determines the values of a
    class without validation samples.

    ``fit_history``: ``temperature``, ``beta``, ``at_lower_bound``, ``at_upper_bound``,
    ``n_infinite_loss`` and ``epsilon`` of ``ts_mix``; ``loss`` (mean NLL plus penalty), ``nll``,
    ``iterations``, ``gradient_norm``.

    Parameters
    ----------
    ridge : factor of the penalty; large values give ``ts_mix``.
    """

    scale_free = True
    maps_impossible = True

    ridge: float = 1.0

    def _start(self, n_classes: int) -> tuple[Array, Array]:
        """Return the identity map and the penalties of its entries, without the factor ``ridge /
        N``.
        """
        return np.ones(n_classes), np.full(n_classes, float(n_classes))

    def _inputs(self, logits: Array) -> Array:
        xp = namespace(logits)
        return xp.clip(xp.log(smoothed(logits, *self.smoothing)), LOG_TINY, None)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_samples, n_classes = logits.shape
        weight, penalty = self._start(n_classes)
        self.smoothing, history = fit_smoothed(logits, labels, self._scale)
        (self.weight, self.bias), fit_history = fit_linear(
            by_blocks(self._inputs, logits),
            labels,
            LinearMap(weight, np.zeros(n_classes)),
            weight_ridge=self.ridge * penalty / n_samples,
            bias_ridge=self.ridge * n_classes / n_samples,
        )
        warnings = history["warnings"] + fit_history["warnings"]
        del history["loss"]
        return {**history, **fit_history, "warnings": warnings}

    def _scores(self, logits: Array, features: Array | None) -> Array:
        linear = LinearMap(self.weight, self.bias)
        return by_blocks(lambda rows: linear.scores(self._inputs(rows)), logits)


@register(
    id="sms",
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv "
    "2511.03685; probmetrics",
    keeps_argmax=False,
    parameters="K^2 + K + 1",
    limits={"ridge": "(0, inf)"},
)
class StructuredMatrixScaling(StructuredVectorScaling):
    """Structured matrix scaling (SMS), ``softmax((I + M) x + b)`` with x = ln p after ``ts_mix``.

    ``mean NLL + K/N (sum M_ii^2 + sum b^2) + K(K-1)/N sum_{i != j} M_ij^2`` is minimised from M = b
    = 0; it is strictly convex. x is bounded below by the ln of the smallest normal float32. At most
    1000 classes.

    ``fit_history`` and ``ridge`` are those of ``svs``.
    """

    def _start(self, n_classes: int) -> tuple[Array, Array]:
        check_classes(self.id, n_classes)
        penalty = np.full((n_classes, n_classes), float(n_classes * (n_classes - 1)))
        np.fill_diagonal(penalty, float(n_classes))
        return np.eye(n_classes), penalty
