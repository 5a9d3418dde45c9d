"""Linear layers of which only a random part of the weights takes part, a new part each epoch."""

from typing import Literal

import torch
from torch import nn
from torch.nn import functional as F

EvalMask = Literal["last", "none", "expect"]


class MaskedLinear(nn.Linear):
    """``z = (M * W) x + b`` with a binary mask M that :meth:`mask_weights` sets; nothing is divided by the rate.

    What the mask takes out is moved from ``weight`` to the buffer ``resting``, so ``weight`` is the folded layer, and
    weight decay has nothing to act on there: the two always add up to the stored W, without rounding.

    Parameters
    ----------
    straight_through : give masked weights the gradient of the effective weights, dL / d(M * W), instead of none; they
        then stay in ``weight``, because they move.
    eval_mask : evaluate with the last mask, with the stored weights, or with their expectation under the rate.
    """

    mask: torch.Tensor
    resting: torch.Tensor
    retention: torch.Tensor

    def __init__(
        self, in_features: int, out_features: int, *, straight_through: bool = False, eval_mask: EvalMask = "last"
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
        mask : (out, in) bool, True where a weight takes part. retention : rate that it was drawn with.
        keep : whether weights that are masked now come back as they are when a later mask keeps them; else they are
            set to zero for good.
        """
        stored = self.stored()
        self.mask.copy_(mask)
        self.retention.fill_(retention)
        resting = torch.zeros_like(stored) if self.straight_through or not keep else stored.masked_fill(self.mask, 0.0)
        self.resting.copy_(resting)
        self.weight.copy_(stored if self.straight_through and keep else stored.masked_fill(~self.mask, 0.0))

    @torch.no_grad()
    def undo_masked_steps(self) -> None:
        """Take back what momentum did to masked weights in a step; their gradient is zero already."""
        if not self.straight_through:
            self.weight.masked_fill_(~self.mask, 0.0)

    def stored(self) -> torch.Tensor:
        """W without its mask, (out, in)."""
        return self.weight + self.resting

    def effective(self) -> torch.Tensor:
        """Weights that the layer uses in its current mode, (out, in)."""
        if not self.training and self.eval_mask != "last":
            stored = self.stored()
            return self.retention * stored if self.eval_mask == "expect" else stored
        masked = self.weight * self.mask
        # the difference adds exactly zero to kept weights and takes masked ones away exactly; the gradient is that of
        # the first term alone
        return self.weight + (masked - self.weight).detach() if self.straight_through else masked

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits or hidden units (N, out) of inputs (N, in)."""
        return F.linear(x, self.effective(), self.bias)


def masked_layers(head: nn.Module) -> list[MaskedLinear]:
    """Masked layers of a head, from input to output."""
    return [module for module in head.modules() if isinstance(module, MaskedLinear)]
