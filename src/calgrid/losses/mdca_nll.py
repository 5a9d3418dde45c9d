"""MDCA over cross-entropy, NLL+MDCA (Hebbalaguppe et al., CVPR 2022, arXiv 2203.13834)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, frequency_gap


@register(
    source="Hebbalaguppe et al., A Stitch in Time Saves Nine, CVPR 2022; "
    "mdca-loss/MDCA-Calibration solvers/loss.py",
    hard_labels=True,
    limits={"beta": "[0, inf)"},
)
class CrossEntropyMDCA(Loss):
    """Cross-entropy plus the per-class gap between mean probability and frequency in the batch.

    ``mean(CE) + beta (1/C) sum_c |mean_i p_ic - mean_i 1[y_i = c]|``; the value depends on the
    batch size.

    Parameters
    ----------
    beta : weight of the gap, at least 0.
    """

    beta: float = 1.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return NLL+MDCA of logits (N, C) and labels (N,); parts ``ce`` and ``mdca``."""
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        gap = frequency_gap(log_probs.exp(), labels)
        return ce + self.beta * gap, {"ce": ce, "mdca": gap}
