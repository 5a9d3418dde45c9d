"""Adaptive and conditional label smoothing, ACLS (Park et al., ICCV 2023, arXiv 2308.11911)."""

from typing import Literal

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy


@register(
    source="Park et al., ICCV 2023, arXiv 2308.11911; cvlab-yonsei/ACLS calibrate/losses/acls.py",
    dataset_defaults={
        "tiny_imagenet": {"margin": 10.0},
        "cub200": {"margin": 10.0},
        "fgvc_aircraft": {"margin": 10.0},
    },
    hard_labels=False,
    limits={
        "alpha": "[0, inf)",
        "margin": "[0, inf)",
        "lambda_pos": "[0, inf)",
        "lambda_neg": "[0, inf)",
    },
)
class ACLS(Loss):
    """Cross-entropy with squared penalties on a large predicted logit and on other logits far below
    it.

    With ``M = max_l s_l``: ``mean(CE) + alpha (lambda_pos mean_i relu(M - m)^2 + lambda_neg / (N (C
    - 1)) sum_i sum_{c: s_c < M} relu(sg[M] - s_c - m)^2)``. In the official code M has a gradient
    in the first term only and is compared with the margin directly, which is not invariant to a
    shift of the logits. The paper compares ``M - min_l s_l`` and has no stop-gradient. All tied
    largest logits count, as in the code.

    Parameters
    ----------
    alpha : weight of both penalties, at least 0; 0.1 in the official code. The FeDLaS paper states
        0.05 for Tiny-ImageNet, CUB and Aircraft, which config/papers/fedlas/study.yaml sets.
    margin : m, at least 0.
    lambda_pos, lambda_neg : weights of the penalty on the predicted and on the other logits, at
        least 0.
    pos_gap : value of the predicted logit that is compared with m: ``raw`` = M (code), ``maxmin`` =
        M - min (paper, also without the stop-gradient).
    """

    alpha: float = 0.1
    margin: float = 6.0
    lambda_pos: float = 1.0
    lambda_neg: float = 0.1
    pos_gap: Literal["raw", "maxmin"] = "raw"

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce``, ``positive`` and
        ``negative``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        if self.pos_gap == "raw":
            gap, largest = logits, logits.detach().amax(dim=1, keepdim=True)
        else:
            gap = logits - logits.min(dim=1, keepdim=True).values
            largest = logits.max(dim=1, keepdim=True).values
        predicted = logits == largest
        excess = (torch.where(predicted, gap, largest - logits) - self.margin).relu().square()
        positive = (excess * predicted).sum() / len(logits)
        negative = (excess * ~predicted).sum() / (len(logits) * (self.num_classes - 1))
        total = (
            ce + self.alpha * self.lambda_pos * positive + self.alpha * self.lambda_neg * negative
        )
        return total, {"ce": ce, "positive": positive, "negative": negative}
