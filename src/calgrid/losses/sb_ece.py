"""Soft-binned ECE as a secondary loss (Karandikar et al., NeurIPS 2021, arXiv 2108.00106)."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, modulation, top_confidence

#: smallest divisor of the means in a bin in the official code
LEAST_MASS = 1e-5


@register(
    source="Karandikar et al., Soft Calibration Objectives for Neural Networks, NeurIPS 2021, "
    "Eq. 11; google/uncertainty-baselines experimental/caltrain/secondary_losses.py",
    hard_labels=True,
    limits={"lambda_": "[0, inf)", "num_bins": "[1, 1000000]", "temperature": "(0, inf)"},
)
class SoftBinnedECE(Loss):
    """Cross-entropy plus an ECE of the batch whose bins are soft, SB-ECE.

    Sample i of confidence k_i is in the bin of centre m_j with the share ``w_ij = softmax_j(-(k_i -
    m_j)^2 / T)``. With its mass ``W_j = sum_i w_ij`` and correctness c, the term is ``sqrt(sum_j
    W_j / N (sum_i w_ij (k_i - c_i) / W_j)^2)``. Exponent 2 is from the official code, which has no
    defaults: 15 bins are usual, lambda 1 and temperature 0.01 are ours. (The authors tuned both;
    their values are not verified.) The term depends on the batch size.

    Parameters
    ----------
    lambda_ : weight of the term, at least 0.
    num_bins : bins of equal width in [0, 1].
    temperature : T, softness of the bins, above 0; the official decay factor f of neighbouring bins
        is ``T = 1 / (log(f) num_bins^2)``.
    """

    lambda_: float = 1.0
    num_bins: int = 15
    temperature: float = 0.01

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce`` and ``sb_ece``."""
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        confidence, correct = top_confidence(log_probs, labels)
        centres = (torch.arange(self.num_bins, device=logits.device) + 0.5) / self.num_bins
        distance = (confidence.unsqueeze(1) - centres).square()
        shares = (distance / -self.temperature).softmax(dim=1)
        mass = shares.sum(dim=0)
        gaps = (shares * (confidence - correct).unsqueeze(1)).sum(dim=0)
        square = (mass * (gaps / mass.clamp_min(LEAST_MASS)).square()).sum() / len(labels)
        term = modulation(square, 0.5)
        return ce + self.lambda_ * term, {"ce": ce, "sb_ece": term}
