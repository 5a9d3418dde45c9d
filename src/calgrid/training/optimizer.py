"""Stochastic gradient descent, with the same results as ``torch.optim.SGD``.

``torch.optim.SGD`` imports PyTorch's compiler, which is unused here and takes more than a second:
longer than a small training.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn


class SGD:
    """SGD over one group of parameters; parameters without a gradient, and their momentum buffers,
    are not changed.

    ``v <- momentum v + g + weight_decay p``, from 0, and ``p <- p - lr v``; with Nesterov's
    momentum ``p <- p - lr (g + weight_decay p + momentum v)``.

    Attributes
    ----------
    param_groups : one mapping, with ``params`` and the learning rate ``lr``, which may be set
        before each step.
    """

    def __init__(
        self,
        parameters: Sequence[nn.Parameter],
        lr: float,
        momentum: float,
        weight_decay: float,
        nesterov: bool,
    ) -> None:
        self.param_groups: list[dict[str, Any]] = [{"params": list(parameters), "lr": lr}]
        self.momentum, self.weight_decay, self.nesterov = momentum, weight_decay, nesterov
        self._velocities = [
            torch.zeros_like(parameter, requires_grad=False) for parameter in parameters
        ]

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Clear the gradients."""
        for parameter in self.param_groups[0]["params"]:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update all parameters that have a gradient."""
        group = self.param_groups[0]
        pairs = zip(group["params"], self._velocities, strict=True)
        moved = [
            (parameter, parameter.grad, v) for parameter, v in pairs if parameter.grad is not None
        ]
        if not moved:
            return
        parameters, velocities = [parameter for parameter, _, _ in moved], [v for _, _, v in moved]
        steps = [grad for _, grad, _ in moved]
        if self.weight_decay:
            steps = list(torch._foreach_add(steps, parameters, alpha=self.weight_decay))
        if self.momentum:
            torch._foreach_mul_(velocities, self.momentum)
            torch._foreach_add_(velocities, steps)
            steps = (
                list(torch._foreach_add(steps, velocities, alpha=self.momentum))
                if self.nesterov
                else velocities
            )
        torch._foreach_add_(parameters, steps, alpha=-group["lr"])

    def state_dict(self) -> dict[str, Any]:
        """Return the momentum buffers; the learning rate is set before each step."""
        return {"velocities": self._velocities}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state of :meth:`state_dict`."""
        for mine, saved in zip(self._velocities, state["velocities"], strict=True):
            mine.copy_(saved)
