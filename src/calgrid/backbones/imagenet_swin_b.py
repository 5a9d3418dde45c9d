"""Swin-B for ImageNet with the first published weights of torchvision (83.582 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="Liu et al., Swin Transformer, ICCV 2021; weights torchvision Swin_B_Weights.IMAGENET1K_V1",
    label="Swin-B (ImageNet)",
    parameters={1000: 87_768_224},
    num_features=1024,
    pretrained=True,
    image_size=224,
    min_size=32,
    macs=15_430_946_816,
    activations=56_600_578,
)
class ImageNetSwinB(TorchvisionBackbone):
    """The network ``swin_b`` of torchvision.

    Images of 32x32 pixels and more are taken; the published weights saw 224x224.
    """

    model = "swin_b"
    weights = "Swin_B_Weights"
