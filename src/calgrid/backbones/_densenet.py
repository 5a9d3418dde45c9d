"""Densely connected networks for small images (Huang et al., CVPR 2017, DenseNet-BC).

The ImageNet layout on a CIFAR stem, as in torrvision/focal_calibration, ``Net/densenet.py``: a 3x3 convolution to
twice the growth without max-pooling, four dense blocks of pre-activation bottlenecks, transitions that halve channels
and resolution, and batch normalisation, ReLU and the mean of the last map at the end.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from calgrid.backbones._resnet import conv3x3, global_pool
from calgrid.backbones.base import Backbone

#: channels inside a bottleneck, in units of the growth
BOTTLENECK = 4


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 to four times the growth, BN, ReLU, 3x3 to the growth; appended to its input."""

    def __init__(self, in_channels: int, growth: int) -> None:
        super().__init__()
        inner = BOTTLENECK * growth
        self.branch = nn.Sequential(
            nn.BatchNorm2d(in_channels),
            nn.ReLU(),
            nn.Conv2d(in_channels, inner, 1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            conv3x3(inner, growth),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C + growth, H, W)``."""
        return torch.cat([x, self.branch(x)], dim=1)


def transition(in_channels: int, out_channels: int) -> nn.Sequential:
    """BN, ReLU, 1x1 convolution, mean of 2x2 squares."""
    return nn.Sequential(
        nn.BatchNorm2d(in_channels), nn.ReLU(), nn.Conv2d(in_channels, out_channels, 1, bias=False), nn.AvgPool2d(2)
    )


class SmallImageDenseNet(Backbone):
    """Dense blocks of ``layers`` layers each; a transition that halves the channels begins each block but the first."""

    def __init__(self, num_classes: int, growth: int, layers: Sequence[int]) -> None:
        channels = 2 * growth
        stages: list[nn.Module] = [conv3x3(3, channels)]
        for number, count in enumerate(layers):
            stage: list[nn.Module] = []
            if number:
                stage.append(transition(channels, channels // 2))
                channels //= 2
            stage += [DenseLayer(channels + position * growth, growth) for position in range(count)]
            channels += count * growth
            stages.append(nn.Sequential(*stage))
        stages[-1] = nn.Sequential(*stages[-1].children(), nn.BatchNorm2d(channels), nn.ReLU())
        super().__init__(stages, global_pool(), channels, num_classes)
