"""Brier score as a training loss (Brier, 1950; compared by Mukhoti et al., NeurIPS 2020)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, one_hot


@register(
    source="Brier, Monthly Weather Review 1950; torrvision/focal_calibration Losses/brier_score.py",
    hard_labels=False,  # the square of the label is a constant
)
class BrierLoss(Loss):
    """Brier loss ``mean_i sum_c (p_ic - 1[c = y_i])^2``: summed over classes, in [0, 2].

    Gradients vanish for confident errors, so training with many classes starts slowly. The official
    scripts lower the learning rate on Tiny-ImageNet to 0.035 and train two cells for longer.
    """

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the mean Brier score of logits (N, C) and labels (N,)."""
        errors = logits.softmax(dim=1) - one_hot(labels, self.num_classes)
        total = errors.square().sum(dim=1).mean()
        return total, {"brier": total}
