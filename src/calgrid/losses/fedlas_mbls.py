"""FeDLaS over margin-based label smoothing (ECCV 2026, arXiv 2606.28654); ``FEDLASplus`` in the
official code.
"""

from typing import Any

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._fedlas import FeDLaS
from calgrid.losses.base import margin_excess


@register(
    source="FeDLaS, ECCV 2026, arXiv 2606.28654, Eqs. 6 and 7; nadarasarbahavan/FEDLAS "
    "calibrate/losses/fedlas.py",
    dataset_defaults={
        "cifar100": {"beta": 1.0, "momentum": 0.5},
        "tiny_imagenet": {"lambda_": 0.05, "margin": 10.0, "momentum": 0.5},
        "cub200": {"lambda_": 0.05, "margin": 10.0, "momentum": 0.5},
        "fgvc_aircraft": {"lambda_": 0.05, "margin": 10.0, "momentum": 0.5},
    },
    needs=("features",),
    hard_labels=True,  # affine in the label, but each call updates the averages
    state="step",
    limits={"lambda_": "[0, 0.5]", "beta": "[0, inf)", "margin": "[0, inf)", "momentum": "[0, 1]"},
)
class FeDLaSMarginLabelSmoothing(FeDLaS):
    """Margin penalty with an adaptive strength, ``mean((1 - a_i) CE_i + a_i R_i)``, a_i in (0, 2
    lambda).

    ``R_i = mean_c relu(max_l s_l - s_c - m)``: a mean over classes as in the code (a sum in Eq. 6).
    The cross-entropy keeps the weight (1 - a_i), so beta = 0 gives ``(1 - lambda) CE + lambda R``
    and not plain MbLS. a_i is that of ``fedlas_ls`` with lambda for alpha.

    Parameters
    ----------
    lambda_ : mean strength, in [0, 0.5].
    beta : slope of the strength in the indicator, at least 0.
    margin : distance m to the largest logit without penalty, at least 0.
    momentum, indicator, gate, ema_start : as in ``fedlas_ls``.
    """

    regulariser_name = "margin"

    def __init__(
        self,
        num_classes: int,
        *,
        lambda_: float = 0.1,
        beta: float = 0.5,
        margin: float = 6.0,
        **options: Any,
    ) -> None:
        super().__init__(num_classes, lambda_, beta=beta, **options)
        self.margin = margin

    def regulariser(self, logits: Tensor, log_probs: Tensor) -> Tensor:
        """Return the mean margin excess (N,)."""
        return margin_excess(logits, self.margin)
