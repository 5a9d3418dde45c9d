"""Cross-entropy weighted by the Brier score, BSCE-GRA (Lin et al., arXiv 2503.22725)."""

from typing import Literal

from torch import Tensor
from torch.linalg import vector_norm

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, one_hot


@register(
    source="Lin et al., Uncertainty Weighted Gradients for Model Calibration, arXiv 2503.22725; "
    "Jinxu-Lin/BSCE-GRA Losses/brier_score.py (BSCELossGra)",
    hard_labels=True,
    limits={"gamma": "[0, inf)"},
)
class BrierWeightedGradients(Loss):
    """Cross-entropy weighted by the error of the probabilities, ``mean(sg(||e_y - p||^gamma) CE)``.

    e_y is the one-hot label; no gradient flows through the weight. For norm 1, ``||e_y - p|| = 2 (1
    - p_y)``: the loss is ``2^gamma`` times ``focal_gra`` of the same gamma. For norm 2 they differ.
    The official trainer sums over the batch (``reduction="sum"``).

    Parameters
    ----------
    gamma : exponent, at least 0; 0 is cross-entropy.
    norm : order of the norm, 1 or 2.
    """

    gamma: float = 1.0
    norm: Literal[1, 2] = 1

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``bsce`` and the plain ``ce``."""
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels)
        errors = log_probs.detach().exp() - one_hot(labels, self.num_classes)
        total = (vector_norm(errors, self.norm, dim=1).pow(self.gamma) * ce).mean()
        return total, {"bsce": total, "ce": ce.mean()}
