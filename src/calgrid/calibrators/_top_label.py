"""Calibrators that map the confidence to a step function or straight lines."""

from collections.abc import Callable

from calgrid.calibrators._binning import lines
from calgrid.calibrators._probabilities import top_label, top_label_map
from calgrid.calibrators.base import Array, Calibrator


class TopLabelMap(Calibrator):
    """The probability of the predicted class is a function of the confidence; the other classes
    share the rest in proportion to their softmax.

    A subclass sets ``points`` and ``accuracy`` in its fit: those of :attr:`function`.
    """

    #: :func:`~calgrid.calibrators._binning.steps` or :func:`~calgrid.calibrators._binning.lines`
    function: Callable[[Array, Array, Array], Array] = staticmethod(lines)
    points: Array
    accuracy: Array

    def _transform(self, logits: Array, features: Array | None) -> Array:
        _, confidence = top_label(logits)
        return top_label_map(logits, self.function(confidence, self.points, self.accuracy))
