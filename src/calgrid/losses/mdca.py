"""MDCA over the focal loss, FL+MDCA (Hebbalaguppe et al., CVPR 2022, arXiv 2203.13834)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import (
    Loss,
    LossTerms,
    complement,
    cross_entropy,
    frequency_gap,
    modulation,
)


@register(
    source="Hebbalaguppe et al., A Stitch in Time Saves Nine, CVPR 2022; "
    "mdca-loss/MDCA-Calibration solvers/loss.py",
    hard_labels=True,
    limits={"beta": "[0, inf)", "gamma": "[0, inf)"},
)
class FocalMDCA(Loss):
    """Focal loss plus the per-class gap between mean probability and frequency in the batch.

    ``mean((1 - p_y)^gamma CE) + beta (1/C) sum_c |mean_i p_ic - mean_i 1[y_i = c]|``. Defaults are
    those of the official CIFAR-10 script (the argument parser has beta 10); the value depends on
    the batch size.

    Parameters
    ----------
    beta : weight of the gap, at least 0.
    gamma : focal exponent, at least 0.
    """

    beta: float = 1.0
    gamma: float = 1.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return FL+MDCA of logits (N, C) and labels (N,); parts ``focal``, ``mdca`` and the plain
        ``ce``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels)
        focal = (modulation(complement(-ce), self.gamma) * ce).mean()
        gap = frequency_gap(log_probs.exp(), labels)
        return focal + self.beta * gap, {"focal": focal, "mdca": gap, "ce": ce.mean()}
