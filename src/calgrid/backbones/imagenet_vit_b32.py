"""ViT-B/32 for ImageNet with the first published weights of torchvision (75.912 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_32_Weights.IMAGENET1K_V1",
    label="ViT-B/32 (ImageNet)",
    parameters={1000: 88_224_232},
    num_features=768,
    pretrained=True,
    image_size=224,
    min_size=224,
    max_size=224,
    macs=4_409_186_304,
    activations=8_846_596,
)
class ImageNetViTB32(TorchvisionBackbone):
    """The network ``vit_b_32`` of torchvision.

    Images must have 224x224 pixels, those of its position embedding.
    """

    model = "vit_b_32"
    weights = "ViT_B_32_Weights"
