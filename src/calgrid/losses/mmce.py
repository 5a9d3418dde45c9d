"""Maximum mean calibration error, unweighted (Kumar et al., ICML 2018)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, kernel, kernel_form, top_confidence


@register(
    source="Kumar et al., ICML 2018; aviralkumar2907/MMCE, torrvision/focal_calibration "
    "Losses/mmce.py (MMCE)",
    hard_labels=True,
    limits={"lambda_": "[0, inf)"},
)
class MMCE(Loss):
    """Cross-entropy plus the kernel calibration error of the batch, MMCE_m.

    ``mean(CE) + lambda (1/N^2) sum_ij (c_i - k_i)(c_j - k_j) exp(-|k_i - k_j| / 0.4)`` with
    correctness c and confidence k. The paper has the square root of the quadratic form, official
    code does not. It costs ``O(N^2)`` and depends on the batch size.

    Parameters
    ----------
    lambda_ : weight of the calibration error, at least 0.
    """

    lambda_: float = 1.0

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return cross-entropy plus MMCE of logits (N, C) and labels (N,); parts ``ce`` and
        ``mmce``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        confidence, correct = top_confidence(log_probs, labels)
        gap = correct - confidence
        mmce = kernel_form(gap, kernel(confidence)) / len(gap) ** 2
        return ce + self.lambda_ * mmce, {"ce": ce, "mmce": mmce}
