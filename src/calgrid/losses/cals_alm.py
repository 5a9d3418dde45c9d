"""Class-adaptive label smoothing by an augmented Lagrangian, CALS-ALM (Liu et al., CVPR 2023, arXiv
2211.15088).
"""

import math

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy

#: range of the multipliers in the official code
LAMBDA_MIN, LAMBDA_MAX = 1e-6, 1e6


@register(
    source="Liu et al., CVPR 2023, arXiv 2211.15088; by-liu/CALS "
    "calibrate/lagrangian/aug_lagrangian_class.py",
    sees_validation=True,
    # the penalty does not depend on the label, and the state changes at the end of an epoch
    hard_labels=False,
    state="epoch",
    limits={
        "margin": "[1e-6, inf)",  # a divisor, like the penalty weight
        "lambda_init": "[0, inf)",
        "rho_init": "[1e-6, inf)",
        "rho_max": "[rho_init, inf)",
        "growth": "[1, inf)",
        "tolerance": "[0, inf)",
        "period": "[1, inf)",
    },
)
class AugmentedLagrangian(Loss):
    """Cross-entropy with a margin constraint per class, whose multipliers are set by the validation
    split.

    Constraint of class c: ``h_c = (max_l s_l - s_c - m) / m <= 0``. With ``x = lambda_c + rho_c
    h_c`` its PHR penalty is ``P = (relu(x)^2 - lambda_c^2) / (2 rho_c)``, its slope ``P' =
    relu(x)``, and ``L = mean(CE) + mean_{i,c} P``. After each epoch, over the validation logits:
    ``lambda_c <- mean_i P'`` (clamped to [1e-6, 1e6]), and every ``period`` epochs ``rho_c <-
    min(growth rho_c, rho_max)`` where the mean of h_c exceeds ``tolerance`` times the positive part
    of that of the epoch before. Official settings exist only for Tiny-ImageNet (margin 10) and
    ImageNet.

    Parameters
    ----------
    margin : m, above 0.
    lambda_init : initial multiplier of each class, at least 0.
    rho_init, rho_max : initial and maximum penalty weight, 0 < rho_init <= rho_max.
    growth : factor of a penalty weight, at least 1.
    tolerance : share of the previous violation above which a penalty weight grows, at least 0.
    period : number of epochs between updates of the penalty weights, at least 1.

    Attributes
    ----------
    lambdas, rhos : (C,). previous : (C,), mean constraint after the last epoch, inf before there is
        one.
    """

    lambdas: Tensor
    rhos: Tensor
    previous: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        margin: float = 10.0,
        lambda_init: float = 1e-6,
        rho_init: float = 1.0,
        rho_max: float = 10.0,
        growth: float = 1.2,
        tolerance: float = 0.9,
        period: int = 10,
    ) -> None:
        super().__init__(num_classes)
        self.margin = margin
        self.rho_min = rho_init
        self.rho_max = rho_max
        self.growth = growth
        self.tolerance = tolerance
        self.period = period
        self.register_buffer("lambdas", torch.full((num_classes,), lambda_init))
        self.register_buffer("rhos", torch.full((num_classes,), rho_init))
        self.register_buffer("previous", torch.full((num_classes,), math.inf))

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce``, ``penalty`` and mean
        ``constraint``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        constraint = self.constraint(logits)
        slope = self._slope(constraint)
        penalty = ((slope.square() - self.lambdas.square()) / (2 * self.rhos)).mean()
        return ce + penalty, {"ce": ce, "penalty": penalty, "constraint": constraint.mean()}

    def constraint(self, logits: Tensor) -> Tensor:
        """Return h (N, C) of logits (N, C), at most 0 if the constraint is met; with gradient of
        the largest logit.
        """
        return (logits.max(dim=1, keepdim=True).values - logits - self.margin) / self.margin

    @torch.no_grad()
    def end_epoch(self, epoch: int, val_logits: Tensor | None, val_labels: Tensor | None) -> None:
        """Update multipliers and penalty weights with the validation logits (M, C)."""
        logits, _ = self.validation(val_logits, val_labels)
        constraint = self.constraint(logits)
        mean = constraint.mean(dim=0)
        self.lambdas.copy_(self._slope(constraint).clamp(LAMBDA_MIN, LAMBDA_MAX).mean(dim=0))
        if (epoch + 1) % self.period == 0:
            stuck = mean > self.tolerance * self.previous.relu()
            grown = torch.where(stuck, self.growth * self.rhos, self.rhos)
            self.rhos.copy_(grown.clamp(self.rho_min, self.rho_max))
        self.previous.copy_(mean)

    def _slope(self, constraint: Tensor) -> Tensor:
        return (self.lambdas + self.rhos * constraint).relu()
