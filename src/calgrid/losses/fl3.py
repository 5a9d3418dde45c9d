"""Focal loss with one exponent (Lin et al., ICCV 2017; for calibration Mukhoti et al., NeurIPS
2020).
"""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, complement, cross_entropy, modulation


@register(
    source="Mukhoti et al., NeurIPS 2020, arXiv 2002.09437; torrvision/focal_calibration "
    "Losses/focal_loss.py",
    hard_labels=True,
    limits={"gamma": "[0, inf)"},
)
class FocalLoss(Loss):
    """Focal loss ``mean((1 - p_y)^gamma CE)`` with gamma 3.

    The gradient also flows through the weight. The official trainer sums over the batch
    (``reduction="sum"``).

    Parameters
    ----------
    gamma : exponent, at least 0; 0 is cross-entropy.
    """

    gamma: float = 3.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the focal loss of logits (N, C) and labels (N,); parts ``focal`` and the plain
        ``ce``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        total = (modulation(complement(-ce), self.gamma) * ce).mean()
        return total, {"focal": total, "ce": ce.mean()}
