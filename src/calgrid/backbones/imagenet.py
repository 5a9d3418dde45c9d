"""ImageNet networks with the first published weights of torchvision; top-1 accuracies are under their own presets.

Images of ``min_size`` pixels and more are taken; the published weights saw ``image_size``. A vision transformer takes
the size of its position embedding alone.
"""

from typing import Any

from calgrid.backbones._torchvision import TorchvisionBackbone
from calgrid.registry import register

CONVOLUTIONAL: dict[str, Any] = {"pretrained": True, "image_size": 224, "min_size": 32}
TRANSFORMER: dict[str, Any] = {
    "pretrained": True,
    "num_features": 768,
    "image_size": 224,
    "min_size": 224,
    "max_size": 224,
}


@register(
    id="imagenet_densenet121",
    source="Huang et al., Densely Connected Convolutional Networks, CVPR 2017; "
    "weights torchvision DenseNet121_Weights.IMAGENET1K_V1",
    label="DenseNet-121 (ImageNet)",
    parameters={1000: 7_978_856},
    num_features=1024,
    **CONVOLUTIONAL,
    macs=2_834_161_664,
    activations=32_632_160,
)
class ImageNetDenseNet121(TorchvisionBackbone):
    """The network ``densenet121`` of torchvision; 74.434 % top-1."""

    model, weights = "densenet121", "DenseNet121_Weights"


@register(
    id="imagenet_resnet50",
    source="He et al., Deep Residual Learning, CVPR 2016; weights torchvision ResNet50_Weights.IMAGENET1K_V1",
    label="ResNet-50 (ImageNet)",
    parameters={1000: 25_557_032},
    num_features=2048,
    **CONVOLUTIONAL,
    macs=4_089_184_256,
    activations=21_503_936,
)
class ImageNetResNet50(TorchvisionBackbone):
    """The network ``resnet50`` of torchvision; 76.130 % top-1."""

    model, weights = "resnet50", "ResNet50_Weights"


@register(
    id="imagenet_resnet101",
    source="He et al., Deep Residual Learning, CVPR 2016; weights torchvision ResNet101_Weights.IMAGENET1K_V1",
    label="ResNet-101 (ImageNet)",
    parameters={1000: 44_549_160},
    num_features=2048,
    **CONVOLUTIONAL,
    macs=7_801_405_440,
    activations=31_765_952,
)
class ImageNetResNet101(TorchvisionBackbone):
    """The network ``resnet101`` of torchvision; 77.374 % top-1."""

    model, weights = "resnet101", "ResNet101_Weights"


@register(
    id="imagenet_wide_resnet50",
    source="Zagoruyko & Komodakis, Wide Residual Networks, BMVC 2016; "
    "weights torchvision Wide_ResNet50_2_Weights.IMAGENET1K_V1",
    label="WRN-50-2 (ImageNet)",
    parameters={1000: 68_883_240},
    num_features=2048,
    **CONVOLUTIONAL,
    macs=11_398_021_120,
    activations=28_084_544,
)
class ImageNetWideResNet50(TorchvisionBackbone):
    """The network ``wide_resnet50_2`` of torchvision; 78.468 % top-1."""

    model, weights = "wide_resnet50_2", "Wide_ResNet50_2_Weights"


@register(
    id="imagenet_swin_b",
    source="Liu et al., Swin Transformer, ICCV 2021; weights torchvision Swin_B_Weights.IMAGENET1K_V1",
    label="Swin-B (ImageNet)",
    parameters={1000: 87_768_224},
    num_features=1024,
    **CONVOLUTIONAL,
    macs=15_430_946_816,
    activations=56_600_578,
)
class ImageNetSwinB(TorchvisionBackbone):
    """The network ``swin_b`` of torchvision; 83.582 % top-1."""

    model, weights = "swin_b", "Swin_B_Weights"


@register(
    id="imagenet_vit_b16",
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_16_Weights.IMAGENET1K_V1",
    label="ViT-B/16 (ImageNet)",
    parameters={1000: 86_567_656},
    **TRANSFORMER,
    macs=17_563_828_224,
    activations=38_580_874,
)
class ImageNetViTB16(TorchvisionBackbone):
    """The network ``vit_b_16`` of torchvision; 81.072 % top-1."""

    model, weights = "vit_b_16", "ViT_B_16_Weights"


@register(
    id="imagenet_vit_b32",
    source="Dosovitskiy et al., An Image is Worth 16x16 Words, ICLR 2021; "
    "weights torchvision ViT_B_32_Weights.IMAGENET1K_V1",
    label="ViT-B/32 (ImageNet)",
    parameters={1000: 88_224_232},
    **TRANSFORMER,
    macs=4_409_186_304,
    activations=8_846_596,
)
class ImageNetViTB32(TorchvisionBackbone):
    """The network ``vit_b_32`` of torchvision; 75.912 % top-1."""

    model, weights = "vit_b_32", "ViT_B_32_Weights"
