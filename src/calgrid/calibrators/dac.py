"""DAC: the temperature grows with the distance to the training images in feature space."""

from typing import cast

import numpy as np
from scipy.optimize import minimize

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    possible_labels,
    softmax,
)
from calgrid.calibrators._temperature import beta_bounds, fit_rescaled, temperature_range
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.components.registry import register


@register(
    source="Tomani, Waseda, Shen, Cremers, Beyond In-Domain Scenarios: Robust Density-Aware "
    "Calibration, ICML 2023, arXiv 2302.05118; code futakw/DensityAwareCalibration",
    needs=("logits", "features", "training features"),
    keeps_argmax=True,
    parameters="L + 1",
)
class DensityAwareCalibration(SoftmaxCalibrator):
    """DAC, ``softmax(z / T)`` with ``T = w_0 + sum_l w_l s_l``, where the weights of distances
    are at least 0 and w_0 may be negative.

    ``features`` are the s_l ``(N, L)``: in layer l the squared distance to the k-th nearest
    training image, features of unit norm (minus :func:`calgrid.metrics.knn`). In a study L = 1, the
    penultimate layer; the paper uses several layers. There k is 50, but at most the mean number of
    training images of a class; the code has 50 for CIFAR-10, 200 for CIFAR-100 and 10 for 1 % of
    ImageNet. The weights have the lowest Brier score on validation data, by L-BFGS-B from the
    single temperature (w_l = 0). The code bounds w_l by 1e4 and w_0 by -100 and 100, and continues
    with ETS or a spline; a further temperature would be part of the weights. T is at least 0.05 and
    at most 100, in units of the logits' spread.

    ``fit_history``: ``w_0``, ``weights``, ``loss`` (Brier score), ``start_loss`` (that of the
    single temperature), ``evaluations``, ``n_infinite_loss`` (samples left out, label's logit
    -inf), ``temperature_min``, ``_mean``, ``_max`` over the validation samples.
    """

    def temperature(self, distances: Array) -> Array:
        """Return the temperature ``(N,)`` of samples with distances ``(N, L)``."""
        clipped: Array = np.clip(self.w_0 + distances @ self.weights, *self.bounds)
        return clipped

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        possible = possible_labels(logits, labels)
        used, targets = logits[possible], labels[possible]
        distances = cast(Array, features)[possible]
        single, scale = fit_rescaled(used, targets)
        least, most = beta_bounds(scale)
        self.bounds = np.array([scale / most, scale / least])
        truth = np.eye(used.shape[1])[targets]
        finite = np.where(np.isfinite(used), used, 0.0)  # their probability is 0
        mean = np.abs(distances).mean(axis=0)
        unit = np.where(mean > 0, mean, 1.0)
        # so that weights are of order 1, whatever the units of logits and distances
        inputs = single.temperature * np.column_stack([np.ones(len(used)), distances / unit])

        def objective(weights: Array) -> tuple[float, Array]:
            linear = inputs @ weights
            temperature = np.clip(linear, *self.bounds)
            probs = softmax(used / temperature[:, None])
            error = probs - truth
            centred = finite - np.vecdot(probs, finite)[:, None]
            by_beta = 2.0 * np.einsum("nk,nk,nk->n", error, probs, centred)
            slope = -by_beta * (temperature == linear) / temperature**2
            return float(np.square(error).sum() / len(used)), slope @ inputs / len(used)

        start = np.eye(inputs.shape[1])[0]
        start_loss = objective(start)[0]
        limits = [(None, None), *[(0.0, None)] * (len(start) - 1)]
        result = minimize(objective, start, jac=True, method="L-BFGS-B", bounds=limits)
        unchanged = start / single.temperature
        found = min((result.x, start, unchanged), key=lambda weights: objective(weights)[0])
        self.w_0 = single.temperature * float(found[0])
        self.weights = single.temperature * found[1:] / unit
        return {
            "unconverged": "" if result.success else str(result.message),
            "w_0": self.w_0,
            "weights": self.weights.tolist(),
            "loss": objective(found)[0],
            "start_loss": start_loss,
            "evaluations": int(result.nfev),
            "n_infinite_loss": int((~possible).sum()),
            **temperature_range(self.temperature(distances), tuple(self.bounds.tolist())),
        }

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits / self.temperature(cast(Array, features))[:, None]
