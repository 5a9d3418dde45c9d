"""Vector scaling: a scale and a bias for each class."""

from typing import Any

import numpy as np

from calgrid.calibrators._linear import LinearMap, fit_linear
from calgrid.calibrators._probabilities import centred, possible_labels
from calgrid.calibrators._temperature import BETA_BOUNDS, fit_temperature
from calgrid.calibrators._validation import IMPOSSIBLE
from calgrid.calibrators.base import Array, Calibrator, Head, Labels
from calgrid.components.registry import register


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, "
    "Sec. 4.2",
    keeps_argmax=False,
    parameters="2K",
)
class VectorScaling(Calibrator):
    """Vector scaling, ``softmax(w * z + b)``, by validation NLL, which is convex.

    Fitted by Newton's method from ``w = 1 / T`` of ``ts``. Cases that the paper does not specify:

    - z is the logits minus the mean of their row, because the map is not invariant to a constant
      added to a row. Public code uses the logits without this.
    - w is kept in [0.01, 20] in units of the spread of the logits, because the loss of separable
      data has no minimum.
    - a class without validation samples keeps ``w = 1 / T``, ``b = 0``; the other biases sum to 0.
      Otherwise its probability would go to 0.

    Samples whose label has the logit -inf are left out.

    ``fit_history``: ``loss`` and ``nll`` (equal; nats), ``iterations``, ``gradient_norm``,
    ``temperature`` (of the start), ``n_absent`` (classes without samples), ``n_infinite_loss``
    (samples left out).
    """

    scale_free = True

    def _inputs(self, logits: Array) -> Array:
        # -inf times a gradient of 0 would be NaN; with w > 0 any number that far below has
        # probability 0
        return np.maximum(centred(logits), -IMPOSSIBLE)

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> dict[str, Any]:
        n_classes = logits.shape[1]
        possible = possible_labels(logits, labels)
        used, targets = (logits, labels) if possible.all() else (logits[possible], labels[possible])
        beta = fit_temperature(used, targets).beta
        present = np.bincount(targets, minlength=n_classes) > 0

        def centre(bias: Array) -> Array:
            return np.where(present, bias - bias[present].mean(), 0.0)

        (self.weight, self.bias), history = fit_linear(
            self._inputs(used),
            targets,
            LinearMap(np.full(n_classes, beta), np.zeros(n_classes)),
            bounds=(
                np.where(present, BETA_BOUNDS[0], beta),
                np.where(present, BETA_BOUNDS[1], beta),
            ),
            centre=centre,
        )
        return {
            **history,
            "temperature": 1.0 / beta,
            "n_absent": int((~present).sum()),
            "n_infinite_loss": int((~possible).sum()),
        }

    def _transform(self, logits: Array, features: Array | None) -> Array:
        return LinearMap(self.weight, self.bias).probabilities(self._inputs(logits))
