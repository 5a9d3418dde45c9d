"""Linear layers with a random binary mask on the weights, new in each epoch."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

EvalMask = Literal["last", "none", "expect"]


class MaskedLinear(nn.Linear):
    """``z = (M * W) x + b`` with a binary mask M of :meth:`mask_weights`, without rescaling.

    Masked weights are moved from ``weight`` to the buffer ``resting``, so that weight decay does
    not affect them; ``weight + resting`` is exactly the stored W.

    Parameters
    ----------
    straight_through : give masked weights the gradient of the effective weights, dL / d(M * W),
        instead of none; they then stay in ``weight`` and are updated.
    eval_mask : evaluate with the last mask, with the stored weights, or with their expectation.
    """

    mask: torch.Tensor
    resting: torch.Tensor
    retention: torch.Tensor

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        straight_through: bool = False,
        eval_mask: EvalMask = "last",
    ) -> None:
        super().__init__(in_features, out_features)
        self.straight_through = straight_through
        self.eval_mask = eval_mask
        self.register_buffer("mask", torch.ones_like(self.weight, dtype=torch.bool))
        self.register_buffer("resting", torch.zeros_like(self.weight))
        self.register_buffer("retention", torch.ones(()))

    @torch.no_grad()
    def mask_weights(self, mask: torch.Tensor, retention: float, *, keep: bool) -> None:
        """Set the mask of an epoch.

        Parameters
        ----------
        mask : (out, in) bool, True for kept weights. retention : retention rate of the mask.
        keep : restore masked weights when a later mask keeps them; else set them to zero.
        """
        stored = self.stored()
        self.mask.copy_(mask)
        self.retention.fill_(retention)
        if self.straight_through or not keep:
            self.resting.zero_()
        else:
            self.resting.copy_(stored.masked_fill(self.mask, 0.0))
        if self.straight_through and keep:
            self.weight.copy_(stored)
        else:
            self.weight.copy_(stored.masked_fill(~self.mask, 0.0))

    @torch.no_grad()
    def undo_masked_steps(self) -> None:
        """Undo the momentum update of masked weights, whose gradient is zero."""
        if not self.straight_through:
            self.weight.masked_fill_(~self.mask, 0.0)

    def stored(self) -> torch.Tensor:
        """W without its mask, (out, in)."""
        return self.weight + self.resting

    def effective(self) -> torch.Tensor:
        """Weights of the layer in its current mode, (out, in)."""
        if not self.training and self.eval_mask != "last":
            stored = self.stored()
            return self.retention * stored if self.eval_mask == "expect" else stored
        masked = self.weight * self.mask
        # exact: adds zero to kept weights and cancels masked ones; only the first term has a
        # gradient
        return self.weight + (masked - self.weight).detach() if self.straight_through else masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits or hidden units (N, out) of inputs (N, in)."""
        return F.linear(x, self.effective(), self.bias)


def masked_layers(head: nn.Module) -> list[MaskedLinear]:
    """Masked layers of a head, from input to output."""
    return [module for module in head.modules() if isinstance(module, MaskedLinear)]
