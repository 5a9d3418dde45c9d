"""Entropy confidence penalty (Pereyra et al., 2017, arXiv 1701.06548)."""

from typing import Literal

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, entropy


@register(
    source="Pereyra et al., arXiv 1701.06548; by-liu/MbLS calibrate/losses/penalty_entropy.py",
    hard_labels=False,
    limits={"beta": "[0, inf)"},
)
class EntropyConfidencePenalty(Loss):
    """Cross-entropy with a reward for entropy, ``mean(CE - beta H)``.

    A large beta can make the loss negative and lead to uniform predictions early in training.

    Parameters
    ----------
    beta : weight of the entropy, at least 0.
    entropy_reduction : ``sum`` over classes is the paper's entropy; ``mean`` over classes (C times
        weaker) is that of the code of MbLS and CALS, used for the published rows of the ACLS line.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        beta: float = 0.1,
        entropy_reduction: Literal["sum", "mean"] = "sum",
    ) -> None:
        super().__init__(num_classes)
        self.beta = beta
        self.scale = 1.0 if entropy_reduction == "sum" else 1.0 / num_classes

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the penalised cross-entropy of logits (N, C) and labels (N,); parts ``ce`` and
        ``entropy``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce, reward = cross_entropy(log_probs, labels).mean(), self.scale * entropy(log_probs).mean()
        return ce - self.beta * reward, {"ce": ce, "entropy": reward}
