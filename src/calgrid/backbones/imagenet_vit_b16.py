"""ViT-B/16 for ImageNet with the first published weights of torchvision (81.072 % top-1 under their own preset)."""

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register


@register(
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_16_Weights.IMAGENET1K_V1",
    label="ViT-B/16 (ImageNet)",
    parameters={1000: 86_567_656},
    num_features=768,
    pretrained=True,
    image_size=224,
    min_size=224,
    max_size=224,
    macs=17_563_828_224,
    activations=38_580_874,
)
class ImageNetViTB16(TorchvisionBackbone):
    """The network ``vit_b_16`` of torchvision.

    Images must have 224x224 pixels, those of its position embedding.
    """

    model = "vit_b_16"
    weights = "ViT_B_16_Weights"
