"""DenseNet-121 for small images, as calibration papers use it on CIFAR."""

from calgrid.backbones._densenet import SmallImageDenseNet
from calgrid.registry import register


@register(
    source="Huang et al., Densely Connected Convolutional Networks, CVPR 2017; "
    "torrvision/focal_calibration Net/densenet.py",
    label="DenseNet-121",
    parameters={10: 6_956_298, 100: 7_048_548},
    num_features=1024,
    pretrained=False,
    image_size=32,
    min_size=8,
    macs=888_350_720,
    activations=9_982_752,
)
class DenseNet121(SmallImageDenseNet):
    """Dense blocks of 6-12-24-16 layers, growth 32, compression 0.5, on a 3x3 stem.

    The network of the ImageNet papers with torchvision's weights is ``imagenet_densenet121``.
    """

    def __init__(self, num_classes: int) -> None:
        super().__init__(num_classes, growth=32, layers=(6, 12, 24, 16))
