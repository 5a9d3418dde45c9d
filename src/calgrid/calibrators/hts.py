"""HTS: the temperature is a function of the entropy of its softmax, of two weights."""

import numpy as np
from scipy.optimize import minimize

from calgrid.calibrators._linear import GRADIENT_TOLERANCE, LOOSE
from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    inverse_softplus,
    namespace,
    sigmoid,
    softplus,
    usable_rows,
)
from calgrid.calibrators._temperature import beta_bounds, fit_rescaled, temperature_range
from calgrid.calibrators.base import SoftmaxCalibrator
from calgrid.calibrators.indicators import entropy
from calgrid.components.registry import register
from calgrid.metrics.moments import moments

#: minimum entropy in nats
LEAST_ENTROPY = 1e-12


def log_entropy(logits: Array) -> Array:
    """Return ``ln(H / ln K)`` ``(N,)`` of the softmax of logits ``(N, K)`` with row maximum 0; H is
    at least 1e-12.
    """
    xp = namespace(logits)
    if xp is np:
        log_total, mean, _ = moments(logits, 1.0)
        nats = log_total - mean
    else:
        nats = entropy(logits)[0]
    return xp.log(xp.clip(nats, LEAST_ENTROPY, None) / np.log(int(logits.shape[1])))


def inverse_temperature(weights: Array, inputs: Array, bounds: Array) -> tuple[Array, Array]:
    """Return beta ``(N,)`` and its derivative in ``w x + b`` ``(N,)``; T is kept in ``bounds``."""
    output = weights[0] * inputs + weights[1]
    temperature = namespace(output).clip(softplus(output), *bounds)
    inside = temperature == softplus(output)
    return 1.0 / temperature, -sigmoid(output) * inside / temperature**2


@register(
    source="Balanya, Maroñas, Ramos, Adaptive Temperature Scaling for Robust Calibration, 2022, "
    "arXiv 2208.00461",
    keeps_argmax=True,
    parameters="2",
)
class EntropyTemperatureScaling(SoftmaxCalibrator):
    """Entropy-based temperature scaling (HTS), ``softmax(z / T)`` with ``T = softplus(w ln(H / ln
    K) + b)``.

    H is the entropy of ``softmax(z)`` in nats, at least 1e-12. Both weights are fitted by the
    validation NLL, by BFGS with the exact gradient, starting from the fitted single temperature (w
    = 0), so the NLL is at most that of the best single temperature in [0.05, 100], in units of the
    logits' spread; the authors start from w = 0.01, b = 0.1. T is kept in that range. The map
    depends on the scale of the
    logits, because the entropy is that of the unscaled softmax.

    ``fit_history``: ``w``, ``b``, ``loss`` (NLL in nats), ``start_loss`` (that of the single
    temperature), ``evaluations``, ``n_infinite_loss`` (samples left out, label's logit -inf),
    ``temperature_min``, ``_mean``, ``_max`` over the validation samples.
    """

    def temperature(self, logits: Array) -> Array:
        """Return the temperature ``(N,)`` of samples with logits ``(N, K)``, row maximum 0."""
        return 1.0 / inverse_temperature(self.weights, log_entropy(logits), self.bounds)[0]

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        used, targets, n_infinite = usable_rows(logits, labels)
        single, scale = fit_rescaled(used, targets)
        least, most = beta_bounds(scale)
        self.bounds = np.array([scale / most, scale / least])
        inputs, true = log_entropy(used), used[np.arange(len(targets)), targets]

        def objective(weights: Array) -> tuple[float, Array]:
            beta, d_output = inverse_temperature(weights, inputs, self.bounds)
            log_total, mean, _ = moments(used, beta)
            slope = (mean - true) * d_output / len(true)
            return float((log_total - beta * true).mean()), np.array([slope @ inputs, slope.sum()])

        start = np.array([0.0, inverse_softplus(single.temperature)])
        start_loss = objective(start)[0]
        result = minimize(objective, start, jac=True, method="BFGS", options={"gtol": 1e-9})
        self.weights = result.x if result.fun < start_loss else start
        over_samples = temperature_range(self.temperature(used), tuple(self.bounds.tolist()))
        largest = float(np.abs(result.jac).max())
        unfinished = f"the largest component of the gradient is {largest:.1e}"
        return {
            "unconverged": unfinished if largest > LOOSE * GRADIENT_TOLERANCE else "",
            "w": float(self.weights[0]),
            "b": float(self.weights[1]),
            "loss": min(float(result.fun), start_loss),
            "start_loss": start_loss,
            "evaluations": int(result.nfev),
            "n_infinite_loss": n_infinite,
            **over_samples,
        }

    def _scores(self, logits: Array, features: Array | None) -> Array:
        return logits / self.temperature(logits)[:, None]
