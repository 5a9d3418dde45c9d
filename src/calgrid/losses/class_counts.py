"""Losses that need the number of training images of each class: weighted cross-entropy, and
label-aware smoothing (Zhong et al., Improving Calibration for Long-Tailed Recognition, CVPR 2021).
"""

import math
from typing import Any

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._terms import cross_entropy, uniform_cross_entropy
from calgrid.losses.base import Loss, LossTerms


class ClassCounts(Loss):
    """Base of losses that depend on the frequencies of classes.

    Attributes
    ----------
    counts : (C,) int64, training images of each class; all 1 before :meth:`begin_training`.
    """

    counts: Tensor

    def __init__(self, num_classes: int, **options: Any) -> None:
        super().__init__(num_classes, **options)
        ones = torch.ones(num_classes, dtype=torch.int64)
        # no state: the same at each start of a training
        self.register_buffer("counts", ones, persistent=False)

    def begin_training(self, labels: Tensor) -> None:
        """Count the labels (S,) of the training split."""
        super().begin_training(labels)
        self.counts.copy_(labels.bincount(minlength=self.num_classes))


@register(
    id="ce_balanced", source="King and Zeng, Political Analysis 2001, weighting", hard_labels=False
)
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


@register(
    id="las",
    source="Zhong et al., CVPR 2021; concave form, defaults for imbalance 100",
    dataset_defaults={"cifar100": {"eps_head": 0.4, "eps_tail": 0.1}},
    hard_labels=False,
    limits={"eps_head": "[0, 1]", "eps_tail": "[0, 1]"},
)
class LabelAwareSmoothing(ClassCounts):
    """Label smoothing that is stronger for frequent classes, ``mean((1 - e_y) CE + e_y U)``, U the
    cross-entropy against the uniform distribution.

    With n_k training images of class k, ``e_k = eps_tail + (eps_head - eps_tail) sin(pi/2 (n_k -
    n_min) / (n_max - n_min))``; with equal n_k, eps_head. Small differences of n_k span the whole
    range too: the loss is for long tails. The official code (dvlab-research/MiSLAS) has this form,
    and uses it in a second stage that trains the classifier on balanced batches; here it trains the
    whole network. Its eps_head and eps_tail by imbalance 10, 50 and 100: 0.1, 0.2, 0.3 and 0
    (CIFAR-10); 0.2 and 0, 0.3 and 0, 0.4 and 0.1 (CIFAR-100).

    Parameters
    ----------
    eps_head : smoothing of the most frequent class, in [0, 1].
    eps_tail : smoothing of the rarest class, in [0, 1].
    """

    eps_head: float = 0.3
    eps_tail: float = 0.0

    @property
    def smoothing(self) -> Tensor:
        """Smoothing e_k of each class, (C,) float32."""
        low, high = self.counts.aminmax()
        rarity = (high - self.counts) / (high - low).clamp_min(1)
        # sin(pi/2 (1 - rarity)); the cosine gives eps_head where all counts are equal
        return self.eps_tail + (self.eps_head - self.eps_tail) * (math.pi / 2 * rarity).cos()

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce`` and ``uniform``."""
        log_probs = logits.log_softmax(dim=1)
        ce, uniform = cross_entropy(log_probs, labels), uniform_cross_entropy(log_probs)
        smoothing = self.smoothing[labels]
        total = ((1 - smoothing) * ce + smoothing * uniform).mean()
        return total, {"ce": ce.mean(), "uniform": uniform.mean()}
