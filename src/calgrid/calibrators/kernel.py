"""Kernel regression of the label on the probabilities, with Dirichlet kernels."""

import numpy as np
from scipy.special import gammaln

from calgrid.calibrators._probabilities import (
    Array,
    Head,
    History,
    Labels,
    by_blocks,
    is_tensor,
    namespace,
    softmax,
)
from calgrid.calibrators.base import Calibrator
from calgrid.components.registry import register
from calgrid.metrics.moments import row_blocks

#: probabilities are kept at least this far from 0
FLOOR = 1e-10
#: maximum number of validation samples of a fit
MOST_SAMPLES = 10_000
#: entries of a block of kernels, which fits into the processor's cache
BLOCK = 1 << 18


def densities(points: Array, bandwidth: float) -> tuple[Array, Array]:
    """Return p_i / h ``(M, K)`` and c_i ``(M,)``: the density of ``Dir(p_i / h + 1)`` at x is
    ``exp(p_i / h . ln x + c_i)``.
    """
    shape = np.maximum(points, FLOOR) / bandwidth
    return shape, gammaln((shape + 1.0).sum(axis=1)) - gammaln(shape + 1.0).sum(axis=1)


def mean_label(shape: Array, log_constant: Array, hits: Array, at: Array) -> Array:
    """Return the mean one-hot label ``(N, K)``, of ``hits`` ``(M, K)``, around probabilities ``at``
    ``(N, K)``, weighted by :func:`densities`.
    """
    xp = namespace(at)

    def convert(rows: Array) -> Array:
        weights = xp.log(xp.clip(rows, FLOOR, None)) @ shape.T
        weights += log_constant
        weights = xp.exp(weights - xp.amax(weights, axis=1, keepdims=True))
        return (weights @ hits) / weights.sum(axis=1, keepdims=True)

    # the length of a tensor would be a constant of its exported graph
    blocks = None if is_tensor(at) else row_blocks(len(at), len(hits), BLOCK)
    return by_blocks(convert, at, blocks)


@register(
    source="Popordanoska, Sayer, Blaschko, A Consistent and Differentiable Lp Canonical "
    "Calibration Error Estimator, NeurIPS 2022 (kernel); CalArena, arXiv 2605.30188 (calibrator)",
    keeps_argmax=False,
    parameters="<= 10000 (K + 1)",
    limits={"bandwidth": "(0, inf)"},
)
class KernelCalibration(Calibrator):
    """Nadaraya-Watson regression of the label on the probabilities, as in CalArena.

    The estimate at x is the mean one-hot label of the validation samples, weighted by the density
    of ``Dir(p_i / h + 1)`` at x; with two classes this is the beta kernel. It counts N times, and
    the uncalibrated probabilities once (ours), so that no probability is 0. Of more than 10,000
    samples every ``ceil(N / 10000)``-th is used, where the code draws 10,000 at random. The
    published bandwidth is wide: the map is nearly constant where K is large. Time and memory of a
    prediction grow with N.

    ``fit_history``: ``bandwidth``.

    Parameters
    ----------
    bandwidth : h; None for that of CalArena, ``N^(-2 / (K + 3))``.
    """

    bandwidth: float | None = None

    def _fit(
        self, logits: Array, labels: Labels, features: Array | None, head: Head | None
    ) -> History:
        chosen = slice(None, None, -(-len(labels) // MOST_SAMPLES))
        used, n_classes = labels[chosen], logits.shape[1]
        width = self.bandwidth or len(used) ** (-2.0 / (n_classes + 3))
        self.shape, self.constant = densities(softmax(logits[chosen]), width)
        self.hits, self.number = np.eye(n_classes)[used], len(used)
        return {"bandwidth": width}

    def _transform(self, logits: Array, features: Array | None) -> Array:
        plain = softmax(logits)
        estimate = mean_label(self.shape, self.constant, self.hits, plain)
        return (self.number * estimate + plain) / (self.number + 1.0)
