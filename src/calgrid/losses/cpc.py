"""Calibration by pairwise constraints, CPC (Cheng & Vasconcelos, CVPR 2022)."""

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from calgrid.losses._base import Loss, Parts
from calgrid.losses._terms import cross_entropy, one_hot
from calgrid.registry import register

#: entries of one (n, C, C) block of pairs; larger batches are cut, and recomputed in the backward pass
BLOCK_ENTRIES = 2**24


@register(
    source="Cheng & Vasconcelos, CVPR 2022; no authors' code, by-liu/CALS calibrate/losses/cpc_loss.py and its config",
    needs=(),
    sees_validation=False,
    hard_labels=True,
    state="none",
)
class PairwiseConstraints(Loss):
    """Cross-entropy plus calibration terms of all binary sub-problems.

    With the C - 1 non-target classes J: ``BD = mean_i 1/(C-1) sum_{j in J} softplus(s_j - s_y)`` separates each from
    the target, ``BE = mean_i 1/((C-1)(C-2)) sum_{j,k in J} softplus(s_k - s_j) / 2`` over ordered pairs, the diagonal
    included, wants them equal; ``L = mean(CE) + lambda_d BD + lambda_e BE``. BE is at least
    ``log(2) / 2 (1 + 1/(C-2))``. For C = 2 there is no pair of non-target classes and BE is 0.

    Parameters
    ----------
    num_classes : number of classes C.
    lambda_d, lambda_e : weights of the two terms, at least 0.
    """

    def __init__(self, num_classes: int, *, lambda_d: float = 0.1, lambda_e: float = 1.0) -> None:
        super().__init__(num_classes)
        self.lambda_d = self.in_range("lambda_d", lambda_d)
        self.lambda_e = self.in_range("lambda_e", lambda_e)

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> tuple[Tensor, Parts]:
        """Return the loss of logits (N, C) and labels (N,); parts ``ce``, ``discrimination`` and ``equality``."""
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        others = 1 - one_hot(labels, self.num_classes)
        margins = logits - logits.gather(1, labels.unsqueeze(1))
        discrimination = (F.softplus(margins) * others).sum(dim=1).mean() / (self.num_classes - 1)
        equality = self._equality(logits, others)
        total = ce + self.lambda_d * discrimination + self.lambda_e * equality
        return total, {"ce": ce, "discrimination": discrimination, "equality": equality}

    def _equality(self, logits: Tensor, others: Tensor) -> Tensor:
        if self.num_classes == 2:
            return logits.new_zeros(())
        rows = max(BLOCK_ENTRIES // self.num_classes**2, 1)
        if len(logits) <= rows:
            total = _pair_sum(logits, others)
        else:
            blocks = zip(logits.split(rows), others.split(rows), strict=True)
            sums = [checkpoint(_pair_sum, *block, use_reentrant=False) for block in blocks]
            total = torch.stack(sums).sum()
        pairs = (self.num_classes - 1) * (self.num_classes - 2)
        return total / (2 * pairs * len(logits))


def _pair_sum(logits: Tensor, others: Tensor) -> Tensor:
    values = F.softplus(logits.unsqueeze(1) - logits.unsqueeze(2))
    # not a matrix product, which a GPU may compute in TF32
    return (values * others.unsqueeze(1) * others.unsqueeze(2)).sum()
