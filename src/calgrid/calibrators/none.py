"""No calibration: the softmax of the logits, the reference of every comparison."""

from typing import Any

from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register


@register(
    source="the softmax of the model itself",
    keeps_argmax=True,
    parameters="0",
)
class Uncalibrated(Calibrator):
    """Softmax of the logits."""

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        return {}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return softmax(logits)

    def _module(self, maps: Any) -> Any:
        return maps.Mixture()
