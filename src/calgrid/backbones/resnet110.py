"""ResNet-110 for small images, as calibration papers use it on CIFAR."""

from calgrid.backbones._resnet import Bottleneck, FourLevelResNet
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet.py",
    label="ResNet-110",
    parameters={10: 45_864_522, 100: 46_048_932},
    num_features=2048,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=2_723_893_248,
    activations=10_367_936,
)
class ResNet110(FourLevelResNet):
    """Four levels of 3-4-26-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem.

    What the line of focal_calibration calls ResNet-110: not the network of 110 layers and 1.7 million parameters of the
    6n + 2 family, which has the same name elsewhere.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, Bottleneck, blocks=(3, 4, 26, 3))
