"""DenseNet-121 for ImageNet with the first published weights of torchvision (74.434 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="Huang et al., Densely Connected Convolutional Networks, CVPR 2017; "
    "weights torchvision DenseNet121_Weights.IMAGENET1K_V1",
    label="DenseNet-121 (ImageNet)",
    parameters={1000: 7_978_856},
    num_features=1024,
    pretrained=True,
    image_size=224,
    min_size=32,
    macs=2_834_161_664,
    activations=32_632_160,
)
class ImageNetDenseNet121(TorchvisionBackbone):
    """The network ``densenet121`` of torchvision.

    Images of 32x32 pixels and more are taken; the published weights saw 224x224.
    """

    model = "densenet121"
    weights = "DenseNet121_Weights"
