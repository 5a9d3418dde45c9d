"""ResNet-50 for small images, as calibration papers use it on CIFAR."""

from calgrid.backbones._resnet import Bottleneck, FourLevelResNet
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet.py",
    label="ResNet-50",
    parameters={10: 23_520_842, 100: 23_705_252},
    num_features=2048,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=1_297_829_888,
    activations=6_405_056,
)
class ResNet50(FourLevelResNet):
    """Four levels of 3-4-6-3 bottlenecks, widths 256-512-1024-2048, on a 3x3 stem.

    The network of the ImageNet papers with torchvision's weights is ``imagenet_resnet50``.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, Bottleneck, blocks=(3, 4, 6, 3))
