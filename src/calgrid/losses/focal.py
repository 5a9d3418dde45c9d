"""Focal losses (Lin et al., ICCV 2017; for calibration Mukhoti et al., NeurIPS 2020; dual: Tao et
al., ICML 2023), and cross-entropy with weights that have no gradient (Lin et al., arXiv
2503.22725).
"""

from typing import Literal

import torch
from torch import Tensor
from torch.linalg import vector_norm

from calgrid.components.registry import register
from calgrid.losses._terms import complement, cross_entropy, modulation, one_hot
from calgrid.losses.base import Loss, LossTerms


@register(
    id="fl3",
    source="Mukhoti et al., NeurIPS 2020, arXiv 2002.09437; torrvision/focal_calibration "
    "Losses/focal_loss.py",
    hard_labels=True,
    limits={"gamma": "[0, inf)"},
)
class FocalLoss(Loss):
    """Focal loss ``mean((1 - p_y)^gamma CE)`` with gamma 3.

    The gradient also flows through the weight. The official trainer sums over the batch
    (``reduction="sum"``).

    Parameters
    ----------
    gamma : exponent, at least 0; 0 is cross-entropy.
    """

    gamma: float = 3.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the focal loss of logits (N, C) and labels (N,); parts ``focal`` and the plain
        ``ce``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        total = (modulation(complement(-ce), self.gamma) * ce).mean()
        return total, {"focal": total, "ce": ce.mean()}


@register(
    id="flsd53",
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


@register(
    id="dfl",
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


@register(
    id="focal_gra",
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


@register(
    id="bsce_gra",
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
