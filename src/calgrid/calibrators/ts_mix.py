"""Temperature scaling mixed with the uniform distribution, so that no probability is 0."""

import numpy as np

from calgrid.calibrators._probabilities import Array, Head, History, Labels, softmax
from calgrid.calibrators._temperature import fit_temperature
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register


def fit_smoothed(logits: Array, labels: Labels, identity: float) -> tuple[Array, History]:
    """Return beta of lowest NLL and epsilon = 1 / (N + 1) for :func:`smoothed`, and the
    ``fit_history``; ``identity`` as in :func:`fit_temperature`.
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
