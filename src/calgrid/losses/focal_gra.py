"""Focal loss whose weight has no gradient (Lin et al., arXiv 2503.22725)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, complement, cross_entropy, modulation


@register(
    source="Lin et al., Uncertainty Weighted Gradients for Model Calibration, arXiv 2503.22725; "
    "Jinxu-Lin/BSCE-GRA Losses/focal_loss.py (FocalLossGra)",
    hard_labels=True,
    limits={"gamma": "[0, inf)"},
)
class FocalWeightedGradients(Loss):
    """Cross-entropy with the focal weight, ``mean(sg((1 - p_y)^gamma) CE)``.

    No gradient flows through the weight, unlike in ``fl3``. The official trainer sums over the
    batch (``reduction="sum"``).

    Parameters
    ----------
    gamma : exponent, at least 0; 0 is cross-entropy.
    """

    gamma: float = 1.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``focal`` and the plain
        ``ce``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        total = (modulation(complement(-ce.detach()), self.gamma) * ce).mean()
        return total, {"focal": total, "ce": ce.mean()}
