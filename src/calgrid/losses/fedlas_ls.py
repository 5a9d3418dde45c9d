"""FeDLaS over label smoothing (ECCV 2026, arXiv 2606.28654); ``FEDLAS`` in the official code."""

from typing import Any

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses._fedlas import FeDLaS
from calgrid.losses.base import uniform_cross_entropy


@register(
    source="FeDLaS, ECCV 2026, arXiv 2606.28654, Eqs. 4 and 7; nadarasarbahavan/FEDLAS "
    "calibrate/losses/fedlas.py",
    dataset_defaults={
        "cifar100": {"alpha": 0.1, "momentum": 0.5},
        "tiny_imagenet": {"momentum": 0.5},
        "cub200": {"momentum": 0.5},
        "fgvc_aircraft": {"momentum": 0.5},
    },
    needs=("features",),
    hard_labels=True,  # affine in the label, but each call updates the averages
    state="step",
    limits={"alpha": "[0, 0.5]", "beta": "[0, inf)", "momentum": "[0, 1]"},
)
class FeDLaSLabelSmoothing(FeDLaS):
    """Label smoothing with an adaptive strength, ``mean((1 - a_i) CE_i + a_i U_i)``.

    U is the cross-entropy against the uniform distribution, and ``a_i = 2 alpha sigmoid(beta psi_i
    gamma_i)``. The indicator ``gamma_i = (n_i - mu) / (sigma + eps)`` standardises the L1 norm n_i
    of the features by moving averages; the gate psi_i in {-1, 0, +1} is learned from the logits.

    Parameters
    ----------
    alpha : mean strength, in [0, 0.5]; a_i lies in (0, 2 alpha).
    beta : slope of the strength in the indicator, at least 0.
    momentum : theta, weight of the current batch in the moving averages (FEDLAS's ViT
        configurations: 0.001).
    indicator : statistic of gamma: L1 norm of the features, largest probability, largest logit,
        constant 1, or standard normal noise.
    gate : ``learned``, or fixed to ``positive`` or ``negative``.
    ema_start : initial values of the moving averages, see ``_fedlas.StandardisedIndicator``.
    """

    regulariser_name = "uniform"

    def __init__(
        self, num_classes: int, *, alpha: float = 0.05, beta: float = 4.0, **options: Any
    ) -> None:
        super().__init__(num_classes, alpha, beta=beta, **options)

    def regulariser(self, logits: Tensor, log_probs: Tensor) -> Tensor:
        """Return the cross-entropy against the uniform distribution (N,)."""
        return uniform_cross_entropy(log_probs)
