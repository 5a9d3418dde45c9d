"""Temperature scaling mixed with the uniform distribution, so that no probability is 0."""

from typing import Any

from calgrid.calibrators._structured import fit_smoothed, smoothed
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.registry import register


@register(
    source="Berta, Holzmüller, Jordan, Bach, Structured Matrix Scaling, AISTATS 2026, arXiv 2511.03685; probmetrics",
    keeps_argmax=True,
    parameters="1",
)
class SmoothedTemperatureScaling(Calibrator):
    """Temperature scaling with Laplace smoothing, ``(1 - e) softmax(z / T) + e / K`` with ``e = 1 / (N + 1)``.

    T is that of lowest validation NLL before the smoothing; N is the number of validation samples. The NLL of a test
    sample is at most ``ln(K (N + 1))``. A class whose logit is -inf gets ``e / K`` too.

    ``fit_history``: that of ``ts``, and ``epsilon``.
    """

    scale_free = True

    def _fit(self, logits: Array, labels: Labels, features: Array | None, head: Head | None) -> dict[str, Any]:
        (self.beta, self.epsilon), history = fit_smoothed(logits, labels)
        return history

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return smoothed(logits, self.beta, self.epsilon)
