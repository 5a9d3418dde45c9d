"""ResNet-101 for Tiny-ImageNet: the network of CIFAR on 64x64 images, with four features a channel."""

from calgrid.backbones._resnet import Bottleneck, TinyImageNetResNet
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet_tiny_imagenet.py",
    label="ResNet-101 (Tiny-ImageNet)",
    parameters={200: 44_131_080},
    num_features=8192,
    pretrained=False,
    image_size=64,
    min_size=64,
    max_size=64,
    macs=10_041_491_456,
    activations=38_936_000,
)
class ResNet101Tiny(TinyImageNetResNet):
    """The trunk of ``resnet101`` under 4x4 average pooling: 8,192 features, for 64x64 images only."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, Bottleneck, blocks=(3, 4, 23, 3))
