"""Sample-dependent focal loss FLSD-53 (Mukhoti et al., NeurIPS 2020, arXiv 2002.09437)."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, complement, cross_entropy, modulation


@register(
    source="Mukhoti et al., NeurIPS 2020; torrvision/focal_calibration "
    "Losses/focal_loss_adaptive_gamma.py",
    hard_labels=True,
    limits={"gamma": "[0, inf)", "gamma_hard": "[0, inf)", "threshold": "[0, 1]"},
)
class SampleDependentFocalLoss(Loss):
    """Focal loss with gamma 5 where p_y < 0.2 and gamma 3 elsewhere.

    gamma is chosen from p_y without a gradient. The official file takes 3 for p_y in [0.2, 0.5)
    from a table and for p_y >= 0.5 from an argument, which its scripts set to 3. The official
    trainer sums over the batch.

    Parameters
    ----------
    gamma : exponent for p_y >= threshold, at least 0.
    gamma_hard : exponent for p_y < threshold, at least 0.
    threshold : in [0, 1].
    """

    gamma: float = 3.0
    gamma_hard: float = 5.0
    threshold: float = 0.2

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the focal loss of logits (N, C) and labels (N,); parts ``focal`` and the plain
        ``ce``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        gamma = torch.where((-ce).exp() < self.threshold, self.gamma_hard, self.gamma)
        total = (modulation(complement(-ce), gamma) * ce).mean()
        return total, {"focal": total, "ce": ce.mean()}
