"""WRN-50-2 for ImageNet with the first published weights of torchvision (78.468 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="Zagoruyko & Komodakis, Wide Residual Networks, BMVC 2016; "
    "weights torchvision Wide_ResNet50_2_Weights.IMAGENET1K_V1",
    label="WRN-50-2 (ImageNet)",
    parameters={1000: 68_883_240},
    num_features=2048,
    pretrained=True,
    image_size=224,
    min_size=32,
    macs=11_398_021_120,
    activations=28_084_544,
)
class ImageNetWideResNet50(TorchvisionBackbone):
    """The network ``wide_resnet50_2`` of torchvision.

    Images of 32x32 pixels and more are taken; the published weights saw 224x224.
    """

    model = "wide_resnet50_2"
    weights = "Wide_ResNet50_2_Weights"
