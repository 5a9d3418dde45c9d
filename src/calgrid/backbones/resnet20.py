"""ResNet-20: the 20-layer network (n = 3) of the CIFAR experiments of He et al."""

from calgrid.backbones._resnet import SmallImageResNet, projection
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2, n = 3",
    label="ResNet-20",
    parameters={10: 272_474, 100: 278_324},
    num_features=64,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=40_813_184,
    activations=380_656,
)
class ResNet20(SmallImageResNet):
    """Residual network of 20 layers, widths 16-32-64.

    Where the shape changes, the shortcut is a 1x1 convolution with batch normalisation (option B of the paper), as in
    the larger networks of the calibration papers; the paper's own has option A, without parameters (269,722).
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, blocks_per_level=3, shortcut=projection)
