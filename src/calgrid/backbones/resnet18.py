"""ResNet-18 for small images, as calibration papers use it on CIFAR."""

from calgrid.backbones._resnet import BasicBlock, FourLevelResNet
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "torrvision/focal_calibration Net/resnet.py",
    label="ResNet-18",
    parameters={10: 11_173_962, 100: 11_220_132},
    num_features=512,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=555_422_720,
    activations=1_179_840,
)
class ResNet18(FourLevelResNet):
    """Four levels of 2-2-2-2 basic blocks, widths 64-128-256-512, on a 3x3 stem.

    Not a network of the 6n + 2 family, whose ids are ``resnet8`` and ``resnet20``.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, BasicBlock, blocks=(2, 2, 2, 2))
