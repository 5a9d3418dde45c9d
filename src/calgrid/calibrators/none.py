"""No calibration: the softmax of the logits, the reference of every comparison."""

from calgrid.calibrators._probabilities import Array, Head, History, Labels
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register


@register(
    source="the softmax of the model itself",
    keeps_argmax=True,
    parameters="0",
)
class Uncalibrated(SoftmaxCalibrator):
    """Softmax of the logits."""

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        return {}

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits
