"""Vector scaling: a scale and a bias for each class."""

import numpy as np

from calgrid.calibrators._linear import (
    FEW_ROWS,
    LEAST_RIDGE,
    LinearMap,
    fit_linear,
    without_infinite,
)
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    by_blocks,
    centred,
    usable_rows,
)
from calgrid.calibrators._temperature import beta_bounds, fit_temperature
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register

#: expected loss on new samples, in nats, above which a fit is warned of
LEAST_LOSS = 0.01


@register(
    source="Guo, Pleiss, Sun, Weinberger, On Calibration of Modern Neural Networks, ICML 2017, "
    "Sec. 4.2",
    keeps_argmax=False,
    parameters="2K",
)
class VectorScaling(SoftmaxCalibrator):
    """Vector scaling, ``softmax(w * z + b)``, by validation NLL, which is convex.

    Fitted by Newton's method from ``w = 1 / T`` of ``ts``. Cases that the paper does not specify:

    - z is the logits minus the mean of their row, because the map is not invariant to a constant
      added to a row. Public code uses the logits without this. On 21 sets of published networks the
      NLL of test samples is lower than with ln p for z on 14 (by at most 0.0045 nats, CIFAR-100
      ResNet-20), higher on 6 (by at most 0.0082, ChestX-ray14) and equal on 1; on the 5 of these
      whose files have ln p, lower on 3 and higher on 1 (by 0.0029). So neither is better, and files
      of ln p are treated like logits.
    - w is kept in [0.01, 20] in units of the spread of the logits, and the squared distance of w
      and b from the start has the penalty 1e-8, because the loss of separable data has no minimum;
      the penalty has no effect on others.
    - a class without validation samples keeps ``w = 1 / T``, ``b = 0``; the other biases sum to 0.
      Otherwise its probability would go to 0.

    With few samples a class, 2K weights fit their noise, and the weights of a class that is
    separable from the others are not determined: at 5 samples of each of 1,000 classes the NLL of
    test samples is twice that of ``ts``. The expected gain over ``ts`` on new
    samples is that on the samples of the fit minus ``(2K - 2) / N`` nats (Akaike, IEEE Trans.
    Automatic Control 19, 1974); a warning is given if it is a loss of more than 0.01.

    A class whose logit is -inf is left out of the softmax of its row, and a sample whose label has
    such a logit is left out.

    ``fit_history``: ``loss`` (with penalty), ``nll`` (nats), ``iterations``, ``gradient_norm``,
    ``start_temperature``, ``n_absent`` (classes without samples), ``n_infinite_loss``
    (samples left out).
    """

    scale_free = True

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        n_classes = logits.shape[1]
        used, targets, n_infinite = usable_rows(logits, labels)
        single = fit_temperature(used, targets, self._scale)
        beta, (least, most) = single.beta, beta_bounds(self._scale)
        present = np.bincount(targets, minlength=n_classes) > 0

        def centre(bias: Array) -> Array:
            return np.where(present, bias - bias[present].mean(), 0.0)

        inputs, impossible = without_infinite(centred(used))
        (self.weight, self.bias), history = fit_linear(
            inputs,
            targets,
            LinearMap(np.full(n_classes, beta), np.zeros(n_classes)),
            bounds=(np.where(present, least, beta), np.where(present, most, beta)),
            weight_ridge=LEAST_RIDGE,
            bias_ridge=LEAST_RIDGE,
            centre=centre,
            exact=len(targets) < FEW_ROWS * n_classes,
            impossible=impossible,
        )
        gain = float(np.min(single.loss)) - history["nll"]
        chance = (2 * int(present.sum()) - 2) / len(targets)
        if chance - gain > LEAST_LOSS:
            history["warnings"].append(
                f"Few samples a class: the fit gains {gain:.3f} nats over one temperature, but "
                f"{chance:.3f} by chance alone; expect a higher NLL than that of 'ts' on new "
                "samples, or use 'svs'."
            )
        return {
            **history,
            "start_temperature": 1.0 / beta,
            "n_absent": int((~present).sum()),
            "n_infinite_loss": n_infinite,
        }

    def _scores(self, logits: Array, features: Array | None) -> Array:
        linear = LinearMap(self.weight, self.bias)
        # with w > 0 a class of -inf has probability 0
        return by_blocks(lambda rows: linear.scores(centred(rows)), logits)
