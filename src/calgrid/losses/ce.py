"""Cross-entropy, the uncalibrated baseline."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy


@register(
    source="maximum likelihood; baseline of all papers",
    hard_labels=False,
)
class CrossEntropy(Loss):
    """Cross-entropy ``mean(-log p_y)``."""

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the mean negative log-likelihood of logits (N, C) and labels (N,)."""
        total = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        return total, {"ce": total}
