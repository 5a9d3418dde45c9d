"""ResNet-9: the shallow residual network of the DAWNBench entries, narrow enough for a CPU."""

from torch import Tensor, nn

from calgrid.backbones._resnet import MapMaximum, conv3x3
from calgrid.backbones.base import Backbone, he_normal_
from calgrid.components.registry import register

#: channels of the two first convolutions and of the two later ones; the DAWNBench entry has 64,
#: 128, 256, 512
WIDTHS = (16, 32, 64, 128)


def conv_unit(in_channels: int, out_channels: int) -> nn.Sequential:
    """3x3 convolution, batch normalisation, ReLU."""
    return nn.Sequential(
        conv3x3(in_channels, out_channels), nn.BatchNorm2d(out_channels), nn.ReLU()
    )


class ResidualPair(nn.Module):
    """Two convolution units whose output is added to their input: ``x + f(x)``, without a ReLU
    after the sum.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.units = nn.Sequential(conv_unit(channels, channels), conv_unit(channels, channels))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, channels, H, W)`` to the same shape."""
        return x + self.units(x)


def pooled_unit(in_channels: int, out_channels: int) -> nn.Sequential:
    """3x3 convolution, 2x2 max-pooling, batch normalisation, ReLU.

    The entry of 2018 pools after the ReLU. Pooled first, a quarter of the values is normalised, and
    a training step on a CPU is 1.2 times as fast.
    """
    return nn.Sequential(
        conv3x3(in_channels, out_channels),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(),
    )


@register(
    source="Page, How to Train Your ResNet, 2018 (DAWNBench CIFAR-10); a quarter of its widths",
    label="ResNet-9",
    parameters={10: 412_954},
    pretrained=False,
    min_size=1,
)
class ResNet9(Backbone):
    """Residual network of 9 layers: four convolutions, two residual pairs, a linear head; widths
    16-32-64-128.
    """

    def __init__(self, num_classes: int) -> None:
        first, second, third, fourth = WIDTHS
        stages = [
            conv_unit(3, first),
            nn.Sequential(pooled_unit(first, second), ResidualPair(second)),
            pooled_unit(second, third),
            nn.Sequential(pooled_unit(third, fourth), ResidualPair(fourth)),
        ]
        super().__init__(stages, nn.Sequential(MapMaximum(), nn.Flatten()), fourth, num_classes)
        he_normal_(self)
