"""Seven objectives of the fit, as functions of one inverse temperature per sample.

All objectives use :class:`Evidence`, which has no N x K array. With gaps ``g_k = z_top - z_k``, the margin
m and rest(beta) of :mod:`calgrid.calibrators._confidence`::

    ln sum_k exp(-beta g_k)   = softplus(rest(beta) - beta m)                                        =: A(beta)
    confidence                = exp(-A(beta))
    -ln p_y                   = beta g_y + A(beta)
    ln sum_k p_k^2            = A(2 beta) - 2 A(beta)

Objectives and their names in Guo et al., SMART, ICML 2026, arXiv 2506.23492, Table 3: ``nll`` (NLL), ``ls``
(LS), ``mse`` (MSE), ``brier`` (Brier), ``softece`` (SoftECE), ``charbonnier`` (Charbonnier-SoftECE); ``pointwise`` is
Eq. 6 as printed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._confidence import RestTable, confidence, margin_and_excess
from calgrid.calibrators._network import sigmoid, softplus
from calgrid.calibrators._probabilities import possible_labels
from calgrid.calibrators._soft_binning import PointwiseBinning, SoftBinning

Array = NDArray[np.float64]
#: replaces the infinite margin of a sample with one possible class, whose confidence is 1 at every temperature
_CERTAIN = 1.0 / np.finfo(np.float64).eps


@dataclass(frozen=True)
class Evidence:
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
    def gather(cls, logits: Array, labels: NDArray[np.int64], lower: float, upper: float) -> Self:
        """Tabulate logits ``(N, K)`` with row maximum 0 for inverse temperatures in [lower, upper].

        Raises DataError if all labels are impossible.
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

    def rows(self, samples: NDArray[np.intp]) -> Self:
        """Return the evidence of some samples; requires that ``rest`` has a method ``rows``, like RestTable."""
        names = ("margin", "correct", "label_gap", "mean_gap")
        chosen = {name: getattr(self, name)[samples] for name in names}
        return replace(self, rest=self.rest.rows(samples), **chosen)  # type: ignore[attr-defined]

    def confidence(self, beta: Array) -> tuple[Array, Array]:
        """Return confidences ``(N,)`` and their derivatives in beta ``(N,)``."""
        return confidence(self.margin, beta, *self.rest(beta))

    def log_sum(self, beta: Array) -> tuple[Array, Array]:
        """Return ``A(beta) = ln sum_k exp(-beta g_k)`` ``(N,)`` and its derivative in beta ``(N,)``."""
        rest, d_rest = self.rest(beta)
        exponent = rest - beta * self.margin
        return softplus(exponent), sigmoid(exponent) * (d_rest - self.margin)


class Objective(ABC):
    """Loss and gradient as a function of one inverse temperature per sample."""

    #: rest is evaluated up to this multiple of beta
    reach = 1.0

    @abstractmethod
    def __call__(self, evidence: Evidence, beta: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d beta ``(N,)``."""


@dataclass(frozen=True)
class OfConfidence(Objective):
    """A loss of confidence and correctness only.

    Attributes
    ----------
    binning : maps confidence ``(N,)`` and correctness ``(N,)`` to the loss and its derivative ``(N,)``.
    """

    binning: Callable[[Array, Array], tuple[float, Array]]

    def __call__(self, evidence: Evidence, beta: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d beta ``(N,)``."""
        probability, d_beta = evidence.confidence(beta)
        loss, d_probability = self.binning(probability, evidence.correct)
        return loss, d_probability * d_beta


@dataclass(frozen=True)
class LogLoss(Objective):
    """Mean cross-entropy in nats, ``-sum_k t_k ln p_k``, with targets ``(1 - alpha) onehot + alpha / K``.

    The share alpha is spread over possible classes (logit above -inf), else the loss would be infinite. Samples with an
    impossible label are left out, because no temperature changes their loss.

    Attributes
    ----------
    alpha : label smoothing; 0 is the NLL.
    """

    alpha: float = 0.0

    def __call__(self, evidence: Evidence, beta: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d beta ``(N,)``."""
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

    def __call__(self, evidence: Evidence, beta: Array) -> tuple[float, Array]:
        """Return the loss and d loss / d beta ``(N,)``."""
        value, slope = evidence.log_sum(beta)
        doubled, d_doubled = evidence.log_sum(2.0 * beta)
        squares = np.exp(doubled - 2.0 * value)
        d_squares = 2.0 * squares * (d_doubled - slope)
        usable = np.isfinite(evidence.label_gap)
        gap = np.where(usable, evidence.label_gap, 0.0)
        label = np.exp(-beta * gap - value) * usable
        d_label = -label * (gap + slope)
        scale = 1.0 / (len(beta) * (evidence.n_classes if self.per_class else 1))
        return float((1.0 - 2.0 * label + squares).sum()) * scale, (d_squares - 2.0 * d_label) * scale


def build_objective(name: str, *, sigma: float, delta: float, alpha: float) -> Objective:
    """Return an objective by name.

    Parameters
    ----------
    name : ``nll``, ``ls``, ``mse``, ``brier``, ``softece``, ``charbonnier`` or ``pointwise``.
    sigma : width of a soft bin, for the last three.
    delta : half-width of the smooth part of the penalty, for the last two.
    alpha : label smoothing, for ``ls``.
    """
    made: dict[str, Callable[[], Objective]] = {
        "nll": LogLoss,
        "ls": lambda: LogLoss(alpha),
        "mse": lambda: SquaredLoss(per_class=True),
        "brier": SquaredLoss,
        "softece": lambda: OfConfidence(SoftBinning(sigma, 0.0)),
        "charbonnier": lambda: OfConfidence(SoftBinning(sigma, delta)),
        "pointwise": lambda: OfConfidence(PointwiseBinning(sigma, delta)),
    }
    return made[name]()
