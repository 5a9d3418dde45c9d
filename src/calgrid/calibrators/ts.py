"""Temperature scaling: one temperature for all samples."""

from calgrid.calibrators._probabilities import Array, Head, History, Labels
from calgrid.calibrators._temperature import TemperatureFit, fit_temperature
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, Eq. "
    "9",
    keeps_argmax=True,
    parameters="1",
)
class TemperatureScaling(SoftmaxCalibrator):
    """Temperature scaling, ``softmax(z / T)`` with the T of lowest validation NLL.

    The authors' code runs L-BFGS without line search on T for at most 200 steps and can stop short;
    the loss is convex in ``beta = 1 / T``, where Newton iterations reach the minimum to 1e-10.
    ``ts_objective`` minimises another objective.

    ``fit_history``: ``temperature``, ``beta``, ``loss`` (at each temperature tried),
    ``at_lower_bound`` and ``at_upper_bound`` (beta has its minimum or maximum), ``n_infinite_loss``
    (omitted samples, whose label has the logit -inf).
    """

    scale_free = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        fit = self._search(logits, labels)
        self.beta = fit.beta
        return fit.history()

    def _search(self, logits: Array, labels: Labels) -> TemperatureFit:
        """Return the temperature of lowest loss."""
        return fit_temperature(logits, labels, self._scale)

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits * self.beta
