"""ResNet-8: the smallest member (n = 1) of the 6n+2 family, for tests and the default grid on a CPU."""

from calgrid.backbones._resnet import SmallImageResNet, padded_shortcut
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016, section 4.2, n = 1",
    label="ResNet-8",
    parameters={10: 75_290},
    num_features=64,
    pretrained=False,
    image_size=32,
    min_size=1,
    macs=12_239_488,
    activations=150_832,
)
class ResNet8(SmallImageResNet):
    """Residual network of 8 layers, widths 16-32-64, option-A shortcuts."""

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, blocks_per_level=1, shortcut=padded_shortcut)
