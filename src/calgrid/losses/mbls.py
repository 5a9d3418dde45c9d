"""Margin-based label smoothing, MbLS (Liu et al., CVPR 2022, arXiv 2111.15430)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, margin_excess


@register(
    source="Liu et al., The Devil is in the Margin, CVPR 2022; by-liu/MbLS "
    "calibrate/losses/logit_margin_l1.py",
    dataset_defaults={
        "tiny_imagenet": {"margin": 10.0, "lambda_": 0.05},
        "cub200": {"margin": 10.0, "lambda_": 0.05},
        "fgvc_aircraft": {"margin": 10.0, "lambda_": 0.05},
    },
    hard_labels=False,
    limits={"margin": "[0, inf)", "lambda_": "[0, inf)"},
)
class MarginLabelSmoothing(Loss):
    """Margin-based label smoothing ``mean(CE) + lambda mean_{i,c} relu(max_l s_l - s_c - m)``.

    Averaged over classes as in the official code (a sum in the paper). Defaults are from the FeDLaS
    paper, so that ``fedlas_mbls`` differs only by its modules; the official run on Tiny-ImageNet
    has ``lambda_=0.1``.

    Parameters
    ----------
    margin : distance m to the largest logit without penalty, at least 0.
    lambda_ : weight of the penalty, at least 0.
    """

    margin: float = 6.0
    lambda_: float = 0.1

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return cross-entropy plus penalty of logits (N, C) and labels (N,); parts ``ce`` and
        ``margin``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels).mean()
        margin = margin_excess(logits, self.margin).mean()
        return ce + self.lambda_ * margin, {"ce": ce, "margin": margin}
