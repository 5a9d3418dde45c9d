"""ResNet-101 for ImageNet with the first published weights of torchvision (77.374 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "weights torchvision ResNet101_Weights.IMAGENET1K_V1",
    label="ResNet-101 (ImageNet)",
    parameters={1000: 44_549_160},
    num_features=2048,
    pretrained=True,
    image_size=224,
    min_size=32,
    macs=7_801_405_440,
    activations=31_765_952,
)
class ImageNetResNet101(TorchvisionBackbone):
    """The network ``resnet101`` of torchvision.

    Images of 32x32 pixels and more are taken; the published weights saw 224x224.
    """

    model = "resnet101"
    weights = "ResNet101_Weights"
