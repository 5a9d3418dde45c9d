"""Correctness ranking loss, CRL (Moon et al., ICML 2020, arXiv 2007.01458)."""

import math
from typing import Literal, cast

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.errors import DataError
from calgrid.losses.base import Loss, LossTerms, PerSample, cross_entropy, entropy


@register(
    source="Moon et al., ICML 2020, arXiv 2007.01458; daintlab/confidence-aware-learning "
    "crl_utils.py, train.py",
    needs=("index",),
    hard_labels=True,  # affine in the label, but the correctness of a mixed label is undefined
    state="step",
    limits={"lambda_": "[0, inf)"},
)
class CorrectnessRanking(Loss):
    """Cross-entropy plus a ranking loss of confidences, ordered by the number of correct
    classifications so far.

    Sample i is paired with j = i + 1 of its batch, the last with the first: with ``g = sign(c_i -
    c_j)``, ``mean(CE) + lambda mean_i relu(-g (k_i - k_j) + |c_i - c_j|)``. Pairs with g = 0 add 0
    and count in the mean. ``c = (count - min) / (max_c - min)``, count the number of epochs with a
    correct prediction, min over all training samples, max_c the number of completed epochs, at
    least 1, so the term is 0 in the first epoch. The paper has c = correct / examined, without the
    minimum. Confidences have a gradient, c has not. For max_c = min the code divides by zero; here
    c is 0.

    Parameters
    ----------
    lambda_ : weight of the ranking term, at least 0.
    indicator : confidence k: largest probability, negative entropy over its maximum ``-H / log C``,
        or the largest probability minus the second (``margin``).

    Attributes
    ----------
    counts : rows (S,) int32, one per training sample. max_count : scalar int64, max_c.
    """

    max_count: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        lambda_: float = 1.0,
        indicator: Literal["maxprob", "entropy", "margin"] = "maxprob",
    ) -> None:
        super().__init__(num_classes)
        self.lambda_ = lambda_
        self.indicator = indicator
        self.counts = PerSample(dtype=torch.int32)
        self.register_buffer("max_count", torch.ones((), dtype=torch.int64))

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C), labels and index (N,); parts ``ce`` and ``ranking``."""
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        seen = self.counts.cover(cast(Tensor, index))
        counts = self.counts.rows[seen]
        span = self.max_count - self.counts.rows.min()
        gap = (counts - counts.roll(-1)) / torch.where(span > 0, span, math.inf)
        if self.indicator == "entropy":
            confidence = -entropy(log_probs) / math.log(self.num_classes)
        elif self.indicator == "maxprob":
            confidence = log_probs.max(dim=1).values.exp()
        else:
            first, second = log_probs.topk(2, dim=1).values.exp().unbind(dim=1)
            confidence = first - second
        lead = confidence - confidence.roll(-1)
        ranking = (gap.abs() - gap.sign() * lead).relu().mean()
        return ce + self.lambda_ * ranking, {"ce": ce, "ranking": ranking}

    def after_step(self, logits: Tensor, labels: Tensor, index: Tensor | None) -> None:
        """Count the correct predictions of the training-mode logits (N, C) of this batch."""
        if index is None:
            raise DataError("loss 'crl' needs index; pass index= to after_step().")
        correct = (logits.argmax(dim=1) == labels).int()
        index = self.counts.cover(index)
        self.counts.rows.index_add_(0, index, correct)

    def end_epoch(self, epoch: int, val_logits: Tensor | None, val_labels: Tensor | None) -> None:
        """Set max_c to the number of completed epochs; it is 1 in the second epoch, as in the
        official code.
        """
        self.max_count.fill_(epoch + 1)
