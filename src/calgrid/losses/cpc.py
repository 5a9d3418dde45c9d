"""Calibration by pairwise constraints, CPC (Cheng & Vasconcelos, CVPR 2022)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, one_hot

#: maximum entries of a (n, C, C) block of pairs: 4 MiB in float32 on a processor; 128 MiB on a GPU,
#: which would start one small kernel after another otherwise
BLOCK_ENTRIES, GPU_BLOCK_ENTRIES = 2**20, 2**25


@register(
    source="Cheng & Vasconcelos, CVPR 2022; no authors' code, by-liu/CALS "
    "calibrate/losses/cpc_loss.py and its config",
    hard_labels=True,
    limits={"lambda_d": "[0, inf)", "lambda_e": "[0, inf)"},
)
class PairwiseConstraints(Loss):
    """Cross-entropy plus calibration terms of all binary sub-problems.

    With the C - 1 non-target classes J: ``BD = mean_i 1/(C-1) sum_{j in J} softplus(s_j - s_y)``
    separates each from the target, ``BE = mean_i 1/((C-1)(C-2)) sum_{j,k in J} softplus(s_k - s_j)
    / 2`` over ordered pairs, including the diagonal, makes them equal; ``L = mean(CE) + lambda_d BD
    + lambda_e BE``. BE is at least ``log(2) / 2 (1 + 1/(C-2))``. For C = 2 there is no pair of
    non-target classes and BE is 0.

    Parameters
    ----------
    lambda_d, lambda_e : weights of the two terms, at least 0.
    """

    lambda_d: float = 0.1
    lambda_e: float = 1.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce``, ``discrimination`` and
        ``equality``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        others = 1 - one_hot(labels, self.num_classes)
        margins = logits - logits.gather(1, labels.unsqueeze(1))
        discrimination = (F.softplus(margins) * others).sum(dim=1).mean() / (self.num_classes - 1)
        equality = logits.new_zeros(())
        if self.num_classes > 2:
            pairs = (self.num_classes - 1) * (self.num_classes - 2)
            equality = _pair_sum(logits, others) / (2 * pairs * len(logits))
        total = ce + self.lambda_d * discrimination + self.lambda_e * equality
        return total, {"ce": ce, "discrimination": discrimination, "equality": equality}


class PairSum(torch.autograd.Function):
    """``sum_i sum_{j,k} o_ij o_ik softplus(s_ik - s_ij)`` of logits s and mask o (N, C), in bounded
    memory.

    Its gradient is known in closed form, ``o_ik sum_j o_ij tanh((s_ik - s_ij) / 2)``, and computed
    together with the value, so that no (N, C, C) array is stored for the backward pass.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, others: Tensor) -> Tensor:
        """Return the sum, scalar."""
        others = others.to(logits)
        # written in place: small arrays between freed large ones would fragment the memory of the
        # process
        values, slopes = torch.empty_like(logits), torch.empty_like(logits)
        most = BLOCK_ENTRIES if logits.is_cpu else GPU_BLOCK_ENTRIES
        rows = max(most // logits.shape[1] ** 2, 1)
        for begin in range(0, len(logits), rows):
            block = slice(begin, begin + rows)
            _pair_block(logits[block], others[block], values[block], slopes[block])
        ctx.save_for_backward(slopes.mul_(others))
        return (values * others).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        """Return the gradient (N, C) of the logits; the mask has none."""
        (slopes,) = ctx.saved_tensors
        return upstream * slopes, None


_pair_sum: Callable[[Tensor, Tensor], Tensor] = PairSum.apply


def _pair_block(logits: Tensor, others: Tensor, values: Tensor, slopes: Tensor) -> None:
    """Write ``sum_j o_j softplus(s_k - s_j)`` and ``sum_j o_j tanh((s_k - s_j) / 2)`` of a block,
    each (n, C).
    """
    gaps = logits.unsqueeze(1) - logits.unsqueeze(2)  # [i, j, k] = s_k - s_j
    weights = others.unsqueeze(2)
    # sums of products instead of a matrix product, which a GPU may compute in TF32
    torch.sum(F.softplus(gaps).mul_(weights), dim=1, out=values)
    # tanh(x / 2) = 2 sigmoid(x) - 1, and sigmoid is ten times faster in torch
    torch.sum(gaps.sigmoid_().mul_(weights), dim=1, out=slopes)
    slopes.mul_(2).sub_(weights.sum(dim=1))
