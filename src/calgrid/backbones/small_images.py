"""Networks for small images as calibration papers use them: residual, wide residual and densely
connected ones.

Those of the line of torrvision/focal_calibration differ from networks of the same names elsewhere;
each says how. The ImageNet networks with torchvision's weights are in ``imagenet.py``.
"""

import torch
from torch import Tensor, nn

from calgrid.backbones._resnet import (
    BasicBlock,
    FourLevelResNet,
    ThreeLevelResNet,
    conv3x3,
    global_pool,
    padded_shortcut,
)
from calgrid.backbones.base import Backbone
from calgrid.components.options import Options
from calgrid.components.registry import register

RESNET = (
    "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet.py"
)
RESNET_TINY = (
    "He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet_tiny_imagenet.py"
)
#: facts of networks that take images of any size, and of those for 64x64 images
SMALL: Options = {"pretrained": False, "min_size": 1}
TINY_IMAGENET: Options = {"pretrained": False, "min_size": 64, "max_size": 64}


@register(
    id="resnet8",
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2, n = 1",
    label="ResNet-8",
    parameters={10: 75_290},
    **SMALL,
)
class ResNet8(ThreeLevelResNet):
    """Residual network of 8 layers, widths 16-32-64, option-A shortcuts."""

    blocks_per_level = 1
    shortcut = staticmethod(padded_shortcut)


@register(
    id="resnet20",
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2, n = 3",
    label="ResNet-20",
    parameters={10: 272_474, 100: 278_324},
    **SMALL,
)
class ResNet20(ThreeLevelResNet):
    """Residual network of 20 layers, widths 16-32-64.

    Where the shape changes, the shortcut is a 1x1 convolution with batch normalisation (option B of
    the paper), as in the larger networks of the calibration papers; the paper's own has option A,
    without parameters (269,722).
    """

    blocks_per_level = 3


@register(
    id="resnet18",
    source=RESNET,
    label="ResNet-18",
    parameters={10: 11_173_962, 100: 11_220_132},
    **SMALL,
)
class ResNet18(FourLevelResNet):
    """Four levels of 2-2-2-2 basic blocks, widths 64-128-256-512, on a 3x3 stem.

    Not a network of the 6n + 2 family, whose ids are ``resnet8`` and ``resnet20``.
    """

    block = BasicBlock
    blocks = (2, 2, 2, 2)


@register(
    id="resnet50",
    source=RESNET,
    label="ResNet-50",
    parameters={10: 23_520_842, 100: 23_705_252},
    **SMALL,
)
class ResNet50(FourLevelResNet):
    """Four levels of 3-4-6-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem."""

    blocks = (3, 4, 6, 3)


@register(
    id="resnet101",
    source=RESNET,
    label="ResNet-101",
    parameters={10: 42_512_970, 100: 42_697_380},
    **SMALL,
)
class ResNet101(FourLevelResNet):
    """Four levels of 3-4-23-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem."""

    blocks = (3, 4, 23, 3)


@register(
    id="resnet110",
    source=RESNET,
    label="ResNet-110",
    parameters={10: 45_864_522, 100: 46_048_932},
    **SMALL,
)
class ResNet110(FourLevelResNet):
    """Four levels of 3-4-26-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem.

    The ResNet-110 of focal_calibration: not the network of 110 layers and 1.7 million parameters of
    the 6n + 2 family with the same name.
    """

    blocks = (3, 4, 26, 3)


@register(
    id="resnet50_tiny",
    source=RESNET_TINY,
    label="ResNet-50 (Tiny-ImageNet)",
    parameters={200: 25_138_952},
    **TINY_IMAGENET,
)
class ResNet50Tiny(FourLevelResNet):
    """The trunk of ``resnet50`` under 4x4 average pooling: 8,192 features, for 64x64 images."""

    blocks = (3, 4, 6, 3)
    quarters = True


@register(
    id="resnet101_tiny",
    source=RESNET_TINY,
    label="ResNet-101 (Tiny-ImageNet)",
    parameters={200: 44_131_080},
    **TINY_IMAGENET,
)
class ResNet101Tiny(FourLevelResNet):
    """The trunk of ``resnet101`` under 4x4 average pooling: 8,192 features, for 64x64 images."""

    blocks = (3, 4, 23, 3)
    quarters = True


@register(
    id="wrn26_10",
    source=(
        "Zagoruyko & Komodakis, Wide Residual Networks, BMVC 2016; torrvision/focal_calibration "
        "Net/wide_resnet.py"
    ),
    label="WRN-26-10",
    parameters={10: 36_481_434, 100: 36_539_124},
    **SMALL,
)
class WideResNet2610(ThreeLevelResNet):
    """Three levels of 4 basic blocks, widths 160-320-640: the size of the original paper's
    WRN-28-10.
    """

    blocks_per_level = 4
    width = 10


#: channels inside a bottleneck, in units of the growth
BOTTLENECK = 4


class DenseLayer(nn.Module):
    """BN, ReLU, 1x1 to four times the growth, BN, ReLU, 3x3 to the growth; added channels."""

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
        nn.BatchNorm2d(in_channels),
        nn.ReLU(),
        nn.Conv2d(in_channels, out_channels, 1, bias=False),
        nn.AvgPool2d(2),
    )


class SmallImageDenseNet(Backbone):
    """Dense blocks of ``layers`` layers each; a transition that halves the channels begins each
    block but the first.

    The ImageNet layout (Huang et al., DenseNet-BC) on a CIFAR stem, as in
    torrvision/focal_calibration: a 3x3 convolution to twice the growth without max-pooling,
    pre-activation bottlenecks, and batch normalisation, ReLU and the mean of the last map at the
    end.
    """

    growth: int
    layers: tuple[int, ...]

    def __init__(self, num_classes: int) -> None:
        growth = self.growth
        channels = 2 * growth
        stages: list[nn.Module] = [conv3x3(3, channels)]
        for number, count in enumerate(self.layers):
            stage: list[nn.Module] = []
            if number:
                stage.append(transition(channels, channels // 2))
                channels //= 2
            stage += [DenseLayer(channels + position * growth, growth) for position in range(count)]
            channels += count * growth
            stages.append(nn.Sequential(*stage))
        stages[-1] = nn.Sequential(*stages[-1].children(), nn.BatchNorm2d(channels), nn.ReLU())
        super().__init__(stages, global_pool(), channels, num_classes)


@register(
    id="densenet121",
    source="Huang et al., Densely Connected Convolutional Networks, CVPR 2017; "
    "torrvision/focal_calibration Net/densenet.py",
    label="DenseNet-121",
    parameters={10: 6_956_298, 100: 7_048_548},
    pretrained=False,
    min_size=8,
)
class DenseNet121(SmallImageDenseNet):
    """Dense blocks of 6-12-24-16 layers, growth 32, compression 0.5, on a 3x3 stem."""

    growth = 32
    layers = (6, 12, 24, 16)
