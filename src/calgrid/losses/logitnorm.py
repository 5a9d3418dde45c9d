"""Cross-entropy of normalised logits, LogitNorm (Wei et al., ICML 2022, arXiv 2205.09310)."""

from torch import Tensor
from torch.linalg import vector_norm

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy

#: added to the norm in the official code
NORM_GUARD = 1e-7


@register(
    source="Wei et al., ICML 2022, arXiv 2205.09310; hongxin001/logitnorm_ood",
    hard_labels=False,
    limits={"tau": "(0, inf)"},
)
class LogitNorm(Loss):
    """Cross-entropy of logits of a fixed norm, ``mean(CE(s / ((||s|| + 1e-7) tau)))``.

    Predictions use the plain logits, whose norm the loss leaves free: judge the network after a
    calibrator, not before. The loss is at least ``log(1 + (C - 1) exp(-sqrt(C / (C - 1)) / tau))``.
    tau 0.04 is from OpenOOD; the authors' README has 0.01 for a WRN on CIFAR-10, their code 1.

    Parameters
    ----------
    tau : temperature of the normalised logits, above 0.
    """

    tau: float = 0.04

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``logitnorm`` and the plain
        ``ce``.
        """
        norms = vector_norm(logits, dim=1, keepdim=True) + NORM_GUARD
        normalised = logits / (norms * self.tau)
        total = cross_entropy(normalised.log_softmax(dim=1), labels).mean()
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        return total, {"logitnorm": total, "ce": ce}
