"""Cross-entropy with the weights of classes."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._terms import cross_entropy
from calgrid.losses.base import Loss, LossTerms


@register(
    source="King and Zeng, Political Analysis 2001, weighting",
    hard_labels=True,
    state="step",
)
class BalancedCrossEntropy(Loss):
    """Cross-entropy in which each class counts alike, ``mean(w_y CE)`` with ``w_k = S / (C S_k)``.

    S_k is one plus the number of training images of class k in all steps before, and S their sum.
    The network learns the probabilities of equally frequent classes: it finds rare classes more
    often, and is not calibrated for the frequencies of the data.

    Attributes
    ----------
    counts : (C,) int64, S_k.
    """

    counts: Tensor

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("counts", torch.ones(num_classes, dtype=torch.int64))

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); part ``ce``, without weights."""
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        weights = self.counts.sum() / (self.num_classes * self.counts)
        return (weights[labels] * ce).mean(), {"ce": ce.mean()}

    def after_step(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> None:
        """Count the labels of this batch."""
        self.counts.index_add_(0, labels.long(), torch.ones_like(labels, dtype=torch.int64))
