"""Residual networks for small images: the 6n+2 family of He et al. (CVPR 2016, section 4.2).

Three resolution levels of ``n`` basic blocks with 16, 32 and 64 channels, a 3x3 stem without max-pooling and
global average pooling. Shortcuts are of option A (identity, zero-padded channels), as in the paper's CIFAR
experiments, so they hold no parameters: the 20-layer network has the 0.27 million of the paper's table 6.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from calgrid.backbones._base import Backbone, he_normal_

WIDTHS = (16, 32, 64)


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """Return a padded 3x3 convolution without bias (batch normalisation follows)."""
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


class PaddedShortcut(nn.Module):
    """Option A of He et al.: subsample in space, append zero channels; no parameters."""

    def __init__(self, extra_channels: int, stride: int) -> None:
        super().__init__()
        self.extra_channels = extra_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C + extra, ceil(H / stride), ceil(W / stride))``."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra_channels))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation around a shortcut (He et al. 2016, figure 2)."""

    def __init__(self, in_channels: int, out_channels: int, stride: int) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, out_channels, stride)
        self.bn1 = nn.BatchNorm2d(out_channels)
        self.conv2 = conv3x3(out_channels, out_channels)
        self.bn2 = nn.BatchNorm2d(out_channels)
        same_shape = stride == 1 and in_channels == out_channels
        self.shortcut = nn.Identity() if same_shape else PaddedShortcut(out_channels - in_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in, H, W)`` to ``(N, out, ceil(H / stride), ceil(W / stride))``."""
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class SmallImageResNet(Backbone):
    """The residual network of 6n + 2 layers, ``n = blocks_per_level``, for 3-channel images."""

    def __init__(self, num_classes: int, blocks_per_level: int) -> None:
        stem = nn.Sequential(conv3x3(3, WIDTHS[0]), nn.BatchNorm2d(WIDTHS[0]), nn.ReLU())
        levels = [
            _level(previous, width, blocks_per_level, stride)
            for previous, width, stride in zip((WIDTHS[0], *WIDTHS[:-1]), WIDTHS, (1, 2, 2), strict=True)
        ]
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__([stem, *levels], pool, WIDTHS[-1], num_classes)
        he_normal_(self)


def _level(in_channels: int, out_channels: int, blocks: int, stride: int) -> nn.Sequential:
    first = BasicBlock(in_channels, out_channels, stride)
    return nn.Sequential(first, *(BasicBlock(out_channels, out_channels, 1) for _ in range(blocks - 1)))
