"""ResNet-50 for ImageNet with the first published weights of torchvision (76.130 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="He et al., Deep Residual Learning for Image Recognition, CVPR 2016; "
    "weights torchvision ResNet50_Weights.IMAGENET1K_V1",
    label="ResNet-50 (ImageNet)",
    parameters={1000: 25_557_032},
    num_features=2048,
    pretrained=True,
    image_size=224,
    min_size=32,
    macs=4_089_184_256,
    activations=21_503_936,
)
class ImageNetResNet50(TorchvisionBackbone):
    """The network ``resnet50`` of torchvision.

    Images of 32x32 pixels and more are taken; the published weights saw 224x224.
    """

    model = "resnet50"
    weights = "ResNet50_Weights"
