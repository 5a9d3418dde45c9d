"""Cross-entropy with the weights of classes."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._counts import ClassCounts
from calgrid.losses.base import LossTerms, cross_entropy


@register(source="King and Zeng, Political Analysis 2001, weighting", hard_labels=False)
class BalancedCrossEntropy(ClassCounts):
    """Cross-entropy in which each class counts alike, ``mean(w_y CE)`` with ``w_k = S / (C n_k)``.

    n_k is the number of training images of class k, and S their sum. The network learns the
    probabilities of equally frequent classes: it finds rare classes more often, and is not
    calibrated for the frequencies of the data.
    """

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); part ``ce``, without weights."""
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        # no label is of a class without images
        weights = self.counts.sum() / (self.num_classes * self.counts.clamp_min(1))
        return (weights[labels] * ce).mean(), {"ce": ce.mean()}
