"""Soft accuracy versus uncertainty as a secondary loss (Karandikar et al., NeurIPS 2021, arXiv
2108.00106).
"""

import math

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, entropy, top_confidence

#: share of the uniform distribution in the entropy, and smallest divisor, of the official code
GUARD = 1e-5
#: keeps the odds of an entropy finite
EDGE = 1e-6


@register(
    source="Karandikar et al., Soft Calibration Objectives for Neural Networks, NeurIPS 2021, "
    "Eq. 15; google/uncertainty-baselines experimental/caltrain/secondary_losses.py",
    hard_labels=True,
    limits={"lambda_": "[0, inf)", "kappa": "(0, 1)", "temperature": "(0, inf)"},
)
class SoftAvUC(Loss):
    """Cross-entropy plus a penalty on correct uncertain and incorrect certain samples, S-AvUC.

    With entropy h, relative entropy ``r = h / log C`` and soft uncertainty ``u = sigmoid(log(r (1 -
    kappa) / ((1 - r) kappa)) / T)``, the batch has the amounts ``u tanh h`` of correct (AU) and
    incorrect (IU) uncertain samples, and ``(1 - u) (1 - tanh h)`` of certain ones (AC, IC). The
    term is ``log(1 + (AU + IC) / (AC + IU))``. The official code has no defaults: lambda 1, kappa
    0.5 and temperature 1 are ours. (The authors tuned them; their values are not verified.)

    Parameters
    ----------
    lambda_ : weight of the term, at least 0.
    kappa : relative entropy above which a sample is uncertain, in (0, 1).
    temperature : T, softness of this threshold, above 0.
    """

    def __init__(
        self,
        num_classes: int,
        *,
        lambda_: float = 1.0,
        kappa: float = 0.5,
        temperature: float = 1.0,
    ) -> None:
        super().__init__(num_classes)
        self.lambda_ = lambda_
        self.temperature = temperature
        self.threshold = math.log(kappa / (1.0 - kappa))

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce`` and ``s_avuc``."""
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        _, correct = top_confidence(log_probs, labels)
        # at least 1e-5 / C, so that the entropy has a finite gradient
        h = entropy(((1.0 - GUARD) * log_probs.exp() + GUARD / self.num_classes).log())
        odds = (h / math.log(self.num_classes)).logit(eps=EDGE)
        u = ((odds - self.threshold) / self.temperature).sigmoid()
        uncertain, certain = u * h.tanh(), (1.0 - u) * (1.0 - h.tanh())
        wrong = (correct * uncertain + (1.0 - correct) * certain).sum()
        right = (correct * certain + (1.0 - correct) * uncertain).sum()
        term = torch.log1p(wrong / right.clamp_min(GUARD))
        return ce + self.lambda_ * term, {"ce": ce, "s_avuc": term}
