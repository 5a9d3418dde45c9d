"""Maximum mean calibration error, weighted by correctness (Kumar et al., ICML 2018)."""

from typing import Literal

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, kernel, kernel_form, top_confidence

#: keeps the gradient of the square root finite, as in the official code
ROOT_FLOOR = 1e-10
#: added to the second divisor of each block in the official code
COUNT_GUARD = 1e-5


@register(
    source="Kumar et al., ICML 2018; aviralkumar2907/MMCE 20ng_mmce.py, torrvision Losses/mmce.py "
    "(MMCE_weighted)",
    hard_labels=True,
    limits={"lambda_": "[0, inf)"},
)
class WeightedMMCE(Loss):
    """Cross-entropy plus the weighted kernel calibration error of the batch, MMCE_w.

    With m correct samples of confidence q and n incorrect ones of confidence r, the blocks are pair
    means: ``A = mean (1-q_i)(1-q_j) k``, ``B = mean r_i r_j k``, ``D = mean (1-q_i) r_j k``. The
    paper has ``sqrt(A + B - 2D)``; Kumar's code and every port divide again, ``sqrt(A/m^2 + B/n^2 -
    2 D/(m n))``, where the smaller group dominates. The published lambda 2 is for the code. The
    term is 0 in a batch without correct or without incorrect samples, depends on the batch size and
    costs ``O(N^2)``.

    Parameters
    ----------
    lambda_ : weight of the calibration error, at least 0.
    norm : scaling of the blocks, ``code`` or ``paper``.
    """

    lambda_: float = 2.0
    norm: Literal["code", "paper"] = "code"

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return cross-entropy plus weighted MMCE of logits (N, C) and labels (N,); parts ``ce``
        and ``mmce``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        confidence, correct = top_confidence(log_probs, labels)
        m = correct.sum()
        n = len(correct) - m
        # 1 - q for a correct sample and -r for an incorrect one: the sum over all pairs then is A +
        # B - 2D, if each pair is divided by the number of pairs in its block
        gap = correct - confidence
        size = torch.where(correct > 0, m, n)
        count = size.unsqueeze(0) * size.unsqueeze(1)
        divisor = count * (count + COUNT_GUARD) if self.norm == "code" else count
        square = kernel_form(gap, kernel(confidence) / divisor)
        # a squared distance, which rounding may make negative
        root = (square.clamp_min(0.0) + ROOT_FLOOR).sqrt()
        mmce = torch.where(m * n > 0, root, 0.0)
        return ce + self.lambda_ * mmce, {"ce": ce, "mmce": mmce}
