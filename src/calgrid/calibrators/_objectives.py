"""Seven objectives of the fit, as functions of one inverse temperature per sample, at a cost
independent of K.

With gaps ``g_k = z_top - z_k`` of the other classes and the margin ``m = min g_k``::

    rest(beta) = ln sum_{k != top} exp(-beta (g_k - m))     in [0, ln(K - 1)], decreasing
    confidence = sigmoid(beta m - rest(beta))

``rest`` is smooth in ln beta, so a table per sample replaces its K logits; the margin, the steep
part, is exact. All objectives use :class:`TopLabelInputs`, which has no N x K array::

    A(beta) = ln sum_k exp(-beta g_k) = softplus(rest(beta) - beta m)
    confidence                = exp(-A(beta))
    -ln p_y                   = beta g_y + A(beta)
    ln sum_k p_k^2            = A(2 beta) - 2 A(beta)

They are those of Guo et al., SMART, ICML 2026, arXiv 2506.23492, Table 3; ``charbonnier`` is its
Charbonnier-SoftECE, and ``pointwise`` is Eq. 6 as printed.
"""

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from calgrid.calibrators._probabilities import (
    Array,
    Labels,
    Places,
    possible_labels,
    sigmoid,
    softplus,
)
from calgrid.metrics.moments import row_blocks

#: replaces an infinite gap (an impossible class), so that it can be multiplied by 0
_WIDE = 1e100
_NODES_PER_DECADE = 21
#: entries of one block of samples, which fits into the processor's cache
_BLOCK = 1 << 15
#: replaces the infinite margin of a sample with one possible class, whose confidence is 1 at every
#: temperature
_CERTAIN = 1.0 / np.finfo(np.float64).eps
#: number of soft bins and their centres
N_BINS = 15
CENTRES = (np.arange(N_BINS) + 0.5) / N_BINS
#: keeps weights and bin means finite far from all samples; value of the public loss of the authors'
#: group
EPSILON = 1e-6


def margin_and_excess(logits: Array) -> tuple[Array, Array]:
    """Return margins m ``(N,)`` and excess gaps ``max(g_k - m, 0)`` ``(N, K)`` of logits with row
    maximum 0.

    A margin is inf if only one class is possible. The excess is 0 for the predicted and the second
    largest class.
    """
    margin = -np.partition(logits, -2, axis=1)[:, -2]
    excess = np.minimum(-logits, _WIDE)
    excess -= np.minimum(margin, _WIDE)[:, None]
    return margin, np.maximum(excess, 0.0, out=excess)


def log_rest(excess: Array, beta: Array) -> tuple[Array, Array]:
    """Return rest(beta) ``(N,)`` and its derivative in beta ``(N,)``, exactly, from the excess gaps
    ``(N, K)``.

    Parameters
    ----------
    beta : inverse temperatures, ``(N,)``, or ``(1,)`` for all samples.
    """
    weights = np.exp(-beta[:, None] * excess)
    # without the exp(0) of the predicted class; that of the second largest remains, so the
    # difference is at least 1
    total = weights.sum(axis=1) - 1.0
    return np.log(total), -np.einsum("nk,nk->n", weights, excess) / total


class RestTable:
    """rest(beta) of N samples by cubic Hermite interpolation in ln beta, with the interpolant's own
    derivative.

    Outside the nodes the value is that of the nearest node and the derivative 0.

    Parameters
    ----------
    excess : ``(N, K)`` from :func:`margin_and_excess`.
    lower, upper : range of beta; nodes are evenly spaced in ln beta, 21 per factor of ten.
    """

    def __init__(self, excess: Array, lower: float, upper: float) -> None:
        n_nodes = round(_NODES_PER_DECADE * np.log10(upper / lower)) + 1
        grid = np.linspace(np.log(lower), np.log(upper), n_nodes)
        self._first = grid[0]
        self._step = grid[1] - grid[0]
        self._last = n_nodes - 1
        self._values, self._slopes = np.empty((2, n_nodes, len(excess)))
        for block in row_blocks(len(excess), excess.shape[1], _BLOCK):
            for node, beta in enumerate(np.exp(grid)):
                self._values[node, block], self._slopes[node, block] = log_rest(
                    excess[block], np.array([beta])
                )
        # derivative per node spacing, as in the Hermite form
        self._slopes *= (np.exp(grid) * self._step)[:, None]
        self._count = len(excess)
        self._samples = np.arange(self._count)

    def rows(self, samples: Places) -> Self:
        """Return the table of some samples, as a view."""
        chosen = copy.copy(self)
        chosen._samples = self._samples[samples]
        return chosen

    def __call__(self, beta: Array) -> tuple[Array, Array]:
        """Return rest(beta) ``(N,)`` and its derivative in beta ``(N,)``, for a beta per sample."""
        position = (np.log(beta) - self._first) / self._step
        inside = np.clip(position, 0.0, self._last)
        node = np.minimum(inside.astype(np.intp), self._last - 1)
        x = inside - node
        left = node * self._count + self._samples
        right = left + self._count
        value, slope = self._values.take(left), self._slopes.take(left)
        rise, right_slope = self._values.take(right) - value, self._slopes.take(right)
        quadratic = 3.0 * rise - 2.0 * slope - right_slope
        cubic = slope + right_slope - 2.0 * rise
        derivative = (slope + x * (2.0 * quadratic + 3.0 * x * cubic)) * (inside == position)
        return value + x * (slope + x * (quadratic + x * cubic)), derivative / (beta * self._step)


def confidence(margin: Array, beta: Array, rest: Array, d_rest: Array) -> tuple[Array, Array]:
    """Return confidence ``(N,)`` and its derivative in beta ``(N,)`` from rest(beta) and its
    derivative.

    ``margin`` must be finite: a sample with one possible class has confidence 1 for every beta.
    """
    probability = sigmoid(beta * margin - rest)
    return probability, probability * (1.0 - probability) * (margin - d_rest)


@dataclass(frozen=True)
class TopLabelInputs:
    """Inputs of the objectives, of N samples.

    Attributes
    ----------
    margin : ``(N,)`` finite margins.
    rest : maps beta ``(N,)`` to rest(beta) and its derivative.
    correct : ``(N,)`` 1.0 for correct predictions.
    label_gap : ``(N,)`` gap of the label; inf for an impossible label.
    mean_gap : ``(N,)`` mean gap of the possible classes.
    n_classes : K.
    """

    margin: Array
    rest: Callable[[Array], tuple[Array, Array]]
    correct: Array
    label_gap: Array
    mean_gap: Array
    n_classes: int

    @classmethod
    def gather(cls, logits: Array, labels: Labels, lower: float, upper: float) -> Self:
        """Tabulate logits ``(N, K)`` with row maximum 0 for inverse temperatures in [lower, upper].

        Raises
        ------
        DataError : all labels are impossible.
        """
        possible_labels(logits, labels)
        margin, excess = margin_and_excess(logits)
        possible = logits > -np.inf
        return cls(
            margin=np.where(np.isfinite(margin), margin, _CERTAIN),
            rest=RestTable(excess, lower, upper),
            correct=(logits.argmax(axis=1) == labels).astype(np.float64),
            label_gap=-logits[np.arange(len(labels)), labels],
            mean_gap=-logits.sum(axis=1, where=possible) / possible.sum(axis=1),
            n_classes=logits.shape[1],
        )

    def rows(self, samples: Places) -> Self:
        """Return the evidence of some samples; requires that ``rest`` has a method ``rows``, like
        RestTable.
        """
        names = ("margin", "correct", "label_gap", "mean_gap")
        chosen = {name: getattr(self, name)[samples] for name in names}
        return replace(self, rest=self.rest.rows(samples), **chosen)  # type: ignore[attr-defined]

    def confidence(self, beta: Array) -> tuple[Array, Array]:
        """Return confidences ``(N,)`` and their derivatives in beta ``(N,)``."""
        return confidence(self.margin, beta, *self.rest(beta))

    def log_sum(self, beta: Array) -> tuple[Array, Array]:
        """Return ``A(beta) = ln sum_k exp(-beta g_k)`` ``(N,)`` and its derivative in beta
        ``(N,)``.
        """
        rest, d_rest = self.rest(beta)
        exponent = rest - beta * self.margin
        return softplus(exponent), sigmoid(exponent) * (d_rest - self.margin)


class Objective(ABC):
    """Loss and gradient as a function of one inverse temperature per sample."""

    #: rest is evaluated up to this multiple of beta
    reach = 1.0

    @abstractmethod
    def __call__(self, evidence: TopLabelInputs, beta: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d beta ``(N,)``."""


@dataclass(frozen=True)
class SoftBinned(Objective):
    """A loss of confidences p and correctness a over Gaussian soft bins of centres ``c_b = (b -
    1/2) / 15``.

    The weights of a sample are ``w_ib = exp(-(p_i - c_b)^2 / (2 sigma^2))``, divided by their sum +
    1e-6.

    Attributes
    ----------
    sigma : width of a soft bin, in units of confidence.
    delta : half-width of the smooth part of the penalty, or 0.
    """

    sigma: float = 0.05
    delta: float = 1e-3

    @abstractmethod
    def of_confidence(self, confidence: Array, correct: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d confidence ``(N,)``.

        Parameters
        ----------
        confidence : ``(N,)`` p in [0, 1].
        correct : ``(N,)`` a, 1.0 where the prediction is right, else 0.0.
        """

    def __call__(self, evidence: TopLabelInputs, beta: Array) -> tuple[float, Array]:
        probability, d_beta = evidence.confidence(beta)
        loss, d_probability = self.of_confidence(probability, evidence.correct)
        return loss, d_probability * d_beta

    def _kernels(self, confidence: Array) -> tuple[Array, Array]:
        """Return the kernels ``(B, N)`` and the factors ``(N,)`` that normalise them."""
        kernel = confidence - CENTRES[:, None]
        np.square(kernel, out=kernel)
        kernel *= -0.5 / self.sigma**2
        np.exp(kernel, out=kernel)
        # normalise vectors of length N instead of the (B, N) matrix
        return kernel, 1.0 / (kernel.sum(axis=0) + EPSILON)

    @staticmethod
    def _sums(kernel: Array, scale: Array, *columns: Array) -> Array:
        """Return sums over bins ``(6, N)`` of weights times 1 and two columns ``(B,)``, and times
        the centres too.
        """
        stacked = np.stack([np.ones(N_BINS), *columns])
        sums = np.concatenate([stacked, stacked * CENTRES]) @ kernel
        sums *= scale
        return sums


class SoftBinning(SoftBinned):
    """Charbonnier SoftECE (Guo et al., SMART, arXiv 2506.23492, Sec. 3.4).

    Over the weights of :class:`SoftBinned`::

        W_b  = sum_i w_ib
        r_b  = sum_i w_ib (p_i - a_i) / (W_b + 1e-6)
        loss = sum_b W_b / N (sqrt(r_b^2 + delta^2) - delta)

    With delta 0 the loss is SoftECE, ``sum_b W_b / N |r_b|``.
    """

    def of_confidence(self, confidence: Array, correct: Array) -> tuple[float, Array]:
        kernel, scale = self._kernels(confidence)
        residual = confidence - correct
        mass, total = kernel @ scale, kernel @ (residual * scale)
        mean, n_samples = total / (mass + EPSILON), len(confidence)
        root = np.sqrt(mean**2 + self.delta**2)
        # |r| is not differentiable at 0: use 0, as for any other delta
        slope = np.divide(mean, root, out=np.zeros_like(mean), where=root > 0.0)
        penalty, share = root - self.delta, mass / (mass + EPSILON)
        loss = float(mass @ penalty) / n_samples
        d_mass, d_total = (penalty - slope * mean * share) / n_samples, slope * share / n_samples

        # dw_b/dp = w_b ((c_b - p) - sum_j w_j (c_j - p)) / sigma^2: every sum over bins is one of
        # these six
        weight, by_mass, by_total, centre, mass_centre, total_centre = self._sums(
            kernel, scale, d_mass, d_total
        )
        pull = mass_centre - confidence * by_mass
        pull = pull + residual * (total_centre - confidence * by_total)
        drift = centre - confidence * weight
        return loss, by_total + (pull - drift * (by_mass + residual * by_total)) / self.sigma**2


class PointwiseBinning(SoftBinned):
    """The objective of Guo et al., SMART, as printed in Eq. 6: each sample is penalised separately.

    Over the weights of :class:`SoftBinned`, ``loss = 1/N sum_i sum_b w_ib sqrt((a_i - c_b)^2 +
    delta^2)``. Without an average before the penalty, the loss is close to the absolute loss ``|a -
    p|``, whose minimum is at confidence 1 if the accuracy exceeds one half. It bounds the smooth
    calibration error but does not calibrate.
    """

    def of_confidence(self, confidence: Array, correct: Array) -> tuple[float, Array]:
        kernel, scale = self._kernels(confidence)
        penalty_wrong = np.hypot(CENTRES, self.delta)
        penalty_right = np.hypot(1.0 - CENTRES, self.delta)
        sums = self._sums(kernel, scale, penalty_wrong, penalty_right - penalty_wrong)
        weight, if_wrong, change, centre, if_wrong_centre, change_centre = sums
        penalty = if_wrong + correct * change
        pull = if_wrong_centre + correct * change_centre - confidence * penalty
        slope = (pull - (centre - confidence * weight) * penalty) / self.sigma**2
        return float(penalty.mean()), slope / len(confidence)


@dataclass(frozen=True)
class LogLoss(Objective):
    """Mean cross-entropy in nats, ``-sum_k t_k ln p_k``, with targets ``(1 - alpha) onehot + alpha
    / K``.

    The share alpha is spread over possible classes (logit above -inf), else the loss would be
    infinite. Samples with an impossible label are left out, because no temperature changes their
    loss.

    Attributes
    ----------
    alpha : label smoothing; 0 is the NLL.
    """

    alpha: float = 0.0

    def __call__(self, evidence: TopLabelInputs, beta: Array) -> tuple[float, Array]:
        usable = np.isfinite(evidence.label_gap)
        count = max(1, int(usable.sum()))
        gap = np.where(usable, evidence.label_gap, 0.0)
        if self.alpha > 0.0:
            gap = (1.0 - self.alpha) * gap + self.alpha * evidence.mean_gap
        value, slope = evidence.log_sum(beta)
        losses, d_losses = beta * gap + value, gap + slope
        return float(losses.sum(where=usable)) / count, d_losses * usable / count


@dataclass(frozen=True)
class SquaredLoss(Objective):
    """Mean squared distance of the probabilities from the one-hot label, ``sum_k (p_k - y_k)^2``.

    Attributes
    ----------
    per_class : divide by K, for the mean over all N x K entries as in deep-learning libraries.
    """

    per_class: bool = False
    reach = 2.0

    def __call__(self, evidence: TopLabelInputs, beta: Array) -> tuple[float, Array]:
        value, slope = evidence.log_sum(beta)
        doubled, d_doubled = evidence.log_sum(2.0 * beta)
        squares = np.exp(doubled - 2.0 * value)
        d_squares = 2.0 * squares * (d_doubled - slope)
        usable = np.isfinite(evidence.label_gap)
        gap = np.where(usable, evidence.label_gap, 0.0)
        label = np.exp(-beta * gap - value) * usable
        d_label = -label * (gap + slope)
        scale = 1.0 / (len(beta) * (evidence.n_classes if self.per_class else 1))
        loss = float((1.0 - 2.0 * label + squares).sum()) * scale
        return loss, (d_squares - 2.0 * d_label) * scale


def build_objective(name: str, *, sigma: float, delta: float, alpha: float) -> Objective:
    """Return the objective with a name; each uses its own of ``sigma``, ``delta`` and ``alpha``."""
    made: dict[str, Objective] = {
        "nll": LogLoss(),
        "ls": LogLoss(alpha),
        "mse": SquaredLoss(per_class=True),
        "brier": SquaredLoss(),
        "softece": SoftBinning(sigma, 0.0),
        "charbonnier": SoftBinning(sigma, delta),
        "pointwise": PointwiseBinning(sigma, delta),
    }
    return made[name]
