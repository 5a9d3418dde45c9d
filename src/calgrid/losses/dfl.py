"""Dual focal loss (Tao et al., ICML 2023, arXiv 2305.13665)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, complement, cross_entropy, modulation


@register(
    source="Tao et al., ICML 2023, arXiv 2305.13665; Linwei94/ICML2023-DualFocalLoss "
    "dual_focal_loss.py and README",
    dataset_defaults={
        "cifar10/resnet110": {"gamma": 4.5},
        "cifar10/wrn26_10": {"gamma": 2.6},
        "cifar100/resnet110": {"gamma": 6.1},
        "cifar100/wrn26_10": {"gamma": 3.9},
        "cifar100/densenet121": {"gamma": 3.4},
        "tiny_imagenet": {"gamma": 2.3},
        "cub200": {"gamma": 2.3},
        "fgvc_aircraft": {"gamma": 2.3},
    },
    hard_labels=True,
    limits={"gamma": "[0, inf)"},
)
class DualFocalLoss(Loss):
    """Focal loss on the gap to the class ranked below the target, ``mean((1 - p_y + p_j)^gamma
    CE)``.

    ``p_j = max{p_c : p_c < p_y}``, 0 if there is none: for a misclassified sample this lies below
    the target and is not the second largest probability. The gradient flows through p_y and p_j.
    gamma is the authors' value per data set and backbone; if they list none, that of ResNet-50. The
    official trainer sums over the batch.

    Parameters
    ----------
    gamma : exponent, at least 0; 0 is cross-entropy.
    """

    gamma: float = 5.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the dual focal loss of logits (N, C) and labels (N,); parts ``focal`` and the
        plain ``ce``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels)
        # compares log-probabilities of one tensor, so that the target is never below itself by
        # rounding
        below = log_probs < -ce.unsqueeze(1)
        runner_up = log_probs.exp().where(below, 0.0).max(dim=1).values
        total = (modulation(complement(-ce) + runner_up, self.gamma) * ce).mean()
        return total, {"focal": total, "ce": ce.mean()}
