"""Means of a network's weights over a training: the checkpoints ``ema`` and ``swa``."""

import torch
from torch import nn

from calgrid.training.protocol import TrainingProtocol


class Average:
    """Running mean of the weights and statistics of a network, also of those that are frozen.

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
        """Move the mean by ``share`` of the way to the network; the first time, all of it."""
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


def first_averaged(protocol: TrainingProtocol) -> int:
    """First epoch, from 0, of the checkpoint ``swa``: at the latest the last one."""
    return min(round(protocol.swa.start * protocol.epochs), protocol.epochs - 1)
