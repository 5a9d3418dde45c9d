"""Means of a network's weights over a training: the checkpoints ``ema`` and ``swa``, and lookahead,
which draws weights towards their running mean.
"""

from collections.abc import Iterable

import torch
from torch import nn

from calgrid.training import protocol


class Average:
    """Running mean of the weights and statistics of a network, frozen ones included.

    Attributes
    ----------
    count : number of networks in the mean. mean : name -> mean; empty before the first one.
    """

    def __init__(self, network: nn.Module) -> None:
        state = network.state_dict()
        # they share memory with the network; counters have no mean
        self._tensors = {name: each for name, each in state.items() if each.is_floating_point()}
        self.count = 0
        self.mean: dict[str, torch.Tensor] = {}

    def add(self, share: float) -> None:
        """Move the mean by ``share`` of the way to the network; the first call copies it."""
        if self.count == 0:
            self.mean = {name: tensor.clone() for name, tensor in self._tensors.items()}
        # frozen weights stay to the bit: their difference is 0
        torch._foreach_lerp_(list(self.mean.values()), list(self._tensors.values()), share)
        self.count += 1

    def restore(self, count: int, mean: dict[str, torch.Tensor]) -> None:
        """Restore ``count`` and ``mean`` of an interrupted training."""
        self.count = count
        for name, tensor in mean.items():
            self.mean[name] = tensor.to(self._tensors[name].device)


def first_averaged(options: protocol.TrainingProtocol) -> int:
    """First epoch, from 0, of the checkpoint ``swa``: at the latest the last one."""
    return min(round(options.swa.start * options.epochs), options.epochs - 1)


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
