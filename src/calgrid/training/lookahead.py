"""Lookahead: weights that are drawn towards their running mean."""

from collections.abc import Iterable

import torch

from calgrid.training import protocol


class Lookahead:
    """Lookahead with a decay that grows during training, as in legacy/airbench94.py of
    github.com/KellerJordan/cifar10-airbench.

    Zhang et al. (Lookahead Optimizer, NeurIPS 2019) have a constant decay.

    Parameters
    ----------
    tensors : trained weights and statistics of the network, changed in place; weights without a
        gradient, as those that a procedure has frozen, stay.
    options : see :class:`calgrid.training.protocol.Lookahead`.
    steps : of the whole training.

    Attributes
    ----------
    mean : the running means, in the order of ``tensors``.
    """

    def __init__(
        self, tensors: Iterable[torch.Tensor], options: protocol.Lookahead, steps: int
    ) -> None:
        self._tensors = list(tensors)
        self._options = options
        self._steps = steps
        self.mean = [tensor.detach().clone() for tensor in self._tensors]

    def after_step(self, done: int) -> None:
        """Update mean and weights, if it is time, after ``done`` steps of the training."""
        is_update = done % self._options.every == 0
        if not is_update and done < self._steps:
            return
        means, tensors = [], []
        for mean, tensor in zip(self.mean, self._tensors, strict=True):
            if tensor.grad is not None or not tensor.requires_grad:
                means.append(mean)
                tensors.append(tensor.detach())
        if is_update:
            decay = self._options.decay * (done / self._steps) ** 3
            torch._foreach_lerp_(means, tensors, 1 - decay)
        torch._foreach_copy_(tensors, means)
