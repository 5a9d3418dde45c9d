"""ResNet-101 for small images, as calibration papers use it on CIFAR."""

from calgrid.backbones._resnet import Bottleneck, FourLevelResNet
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet.py",
    label="ResNet-101",
    parameters={10: 42_512_970, 100: 42_697_380},
    num_features=2048,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=2_509_983_744,
    activations=9_773_504,
)
class ResNet101(FourLevelResNet):
    """Four levels of 3-4-23-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem.

    The network of the ImageNet papers with torchvision's weights is ``imagenet_resnet101``.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, Bottleneck, blocks=(3, 4, 23, 3))
