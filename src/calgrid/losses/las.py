"""Label-aware smoothing (Zhong et al., Improving Calibration for Long-Tailed Recognition, CVPR
2021).
"""

import math

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._counts import ClassCounts
from calgrid.losses.base import LossTerms, cross_entropy, uniform_cross_entropy


@register(
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
