"""Residual networks for small images: a 3x3 stem without max-pooling, levels of blocks, global
average pooling.

Three families: the 6n+2 networks of He et al. (CVPR 2016, section 4.2), three levels of 16, 32 and
64 channels; and the ImageNet networks of the same paper on a CIFAR stem, as calibration papers use
them (official code torrvision/focal_calibration, ``Net/resnet.py``): four levels of 64, 128, 256
and 512 channels with shortcuts of option B (1x1 convolution and batch normalisation where the shape
changes). And the wide networks of Zagoruyko & Komodakis (BMVC 2016) in the variant of the same
code, ``Net/wide_resnet.py``: activations after the convolutions as in He et al., and 6n + 2 layers
counted, so that its 26 layers are the blocks of the paper's WRN-28.
"""

from collections.abc import Callable, Sequence

import torch.nn.functional as F
from torch import Tensor, nn

from calgrid.backbones.base import Backbone, he_normal_

WIDTHS = (16, 32, 64)
#: channels inside the blocks of each level of the four-level networks
FOUR_WIDTHS = (64, 128, 256, 512)
#: side of the last average pool of the official code: one value per channel for 32x32 images
POOL = 4


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """Return a padded 3x3 convolution without bias (batch normalisation follows)."""
    return nn.Conv2d(in_channels, out_channels, 3, stride=stride, padding=1, bias=False)


def global_pool() -> nn.Sequential:
    """Mean of each channel: ``(N, C, H, W)`` to ``(N, C)``."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())


class MapMaximum(nn.Module):
    """Maximum of each channel of a map: the numbers of ``nn.AdaptiveMaxPool2d(1)``, whose gradient
    has no deterministic kernel on a GPU.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C, 1, 1)``."""
        return F.max_pool2d(x, x.shape[2:])


class PaddedShortcut(nn.Module):
    """Option A of He et al.: subsample in space, append zero channels; no parameters."""

    def __init__(self, extra_channels: int, stride: int) -> None:
        super().__init__()
        self.extra_channels = extra_channels
        self.stride = stride

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, C, H, W)`` to ``(N, C + extra, ceil(H / stride), ceil(W / stride))``."""
        return F.pad(x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.extra_channels))


def padded_shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Option A, or the identity where the shape stays."""
    same_shape = stride == 1 and in_channels == out_channels
    return nn.Identity() if same_shape else PaddedShortcut(out_channels - in_channels, stride)


def projection(in_channels: int, out_channels: int, stride: int) -> nn.Module:
    """Option B, 1x1 convolution and batch normalisation, or the identity where the shape stays."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )


Shortcut = Callable[[int, int, int], nn.Module]


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with batch normalisation and a shortcut (He et al. 2016, figure 2)."""

    expansion = 1

    def __init__(
        self, in_channels: int, channels: int, stride: int, shortcut: Shortcut = projection
    ) -> None:
        super().__init__()
        self.conv1 = conv3x3(in_channels, channels, stride)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels)
        self.bn2 = nn.BatchNorm2d(channels)
        self.shortcut = shortcut(in_channels, channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in, H, W)`` to ``(N, channels, ceil(H / stride), ceil(W / stride))``."""
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


class Bottleneck(nn.Module):
    """1x1, 3x3 (with the stride) and 1x1 convolutions around a shortcut (He et al. 2016, figure 5
    right).
    """

    expansion = 4

    def __init__(
        self, in_channels: int, channels: int, stride: int, shortcut: Shortcut = projection
    ) -> None:
        super().__init__()
        out_channels = self.expansion * channels
        self.conv1 = nn.Conv2d(in_channels, channels, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = conv3x3(channels, channels, stride)
        self.bn2 = nn.BatchNorm2d(channels)
        self.conv3 = nn.Conv2d(channels, out_channels, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.shortcut = shortcut(in_channels, out_channels, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, in, H, W)`` to ``(N, 4 channels, ceil(H / stride), ceil(W / stride))``."""
        out = F.relu(self.bn1(self.conv1(x)))
        out = F.relu(self.bn2(self.conv2(out)))
        return F.relu(self.bn3(self.conv3(out)) + self.shortcut(x))


Block = type[BasicBlock] | type[Bottleneck]


def stem_and_levels(
    block: Block,
    stem_channels: int,
    widths: Sequence[int],
    blocks: Sequence[int],
    shortcut: Shortcut = projection,
) -> list[nn.Module]:
    """Return the stem and one level for each of ``widths``; the first keeps the resolution, each
    other halves it.
    """
    stages: list[nn.Module] = [
        nn.Sequential(conv3x3(3, stem_channels), nn.BatchNorm2d(stem_channels), nn.ReLU())
    ]
    channels = stem_channels
    for number, (width, count) in enumerate(zip(widths, blocks, strict=True)):
        level = [block(channels, width, 1 if number == 0 else 2, shortcut)]
        channels = block.expansion * width
        level += [block(channels, width, 1, shortcut) for _ in range(count - 1)]
        stages.append(nn.Sequential(*level))
    return stages


class ThreeLevelResNet(Backbone):
    """Three levels of ``blocks_per_level`` basic blocks with ``width`` times 16, 32 and 64
    channels, drawn by He.

    Of width 1 it is the network of 6n + 2 layers, ``n = blocks_per_level``; wider ones are the wide
    networks.
    """

    blocks_per_level: int
    width = 1
    shortcut: Shortcut = staticmethod(projection)

    def __init__(self, num_classes: int) -> None:
        widths = [self.width * channels for channels in WIDTHS]
        blocks = [self.blocks_per_level] * len(widths)
        stages = stem_and_levels(BasicBlock, WIDTHS[0], widths, blocks, self.shortcut)
        super().__init__(stages, global_pool(), widths[-1], num_classes)
        he_normal_(self)


class FourLevelResNet(Backbone):
    """An ImageNet residual network on the CIFAR stem, with PyTorch's default initialisation.

    The official code averages 4x4 squares of the last map, which at 32x32 is the mean of the map.
    We use the mean at every size, so that the number of features is constant. With ``quarters`` the
    network is as in ``Net/resnet_tiny_imagenet.py`` for 64x64 images: 4x4 squares of the 8x8 map
    leave 2 x 2 values a channel, all used as features (adaptive pooling there gives the same), and
    convolutions are initialised as He et al. propose.
    """

    block: Block = Bottleneck
    blocks: tuple[int, ...]
    quarters = False

    def __init__(self, num_classes: int) -> None:
        stages = stem_and_levels(self.block, FOUR_WIDTHS[0], FOUR_WIDTHS, self.blocks)
        pool = global_pool()
        num_features = self.block.expansion * FOUR_WIDTHS[-1]
        if self.quarters:
            pool = nn.Sequential(nn.AvgPool2d(POOL), nn.Flatten())
            num_features *= 4
        super().__init__(stages, pool, num_features, num_classes)
        if self.quarters:
            he_normal_(self)
