"""Any model of the library timm as ``timm/<name>``, for example ``timm/convnext_tiny.fb_in1k``, and ``vit_b16_384``."""

from calgrid.backbones._timm import TimmBackbone
from calgrid.registry import register

#: fixed weights, because the default weights of timm may change
NAME = "vit_base_patch16_384.augreg_in21k_ft_in1k"


@register(
    id="timm",
    source="Wightman, PyTorch Image Models (timm); each model names its own paper there",
    label="timm",
    library=True,
    parameters={},
    pretrained=True,
)
class Timm(TimmBackbone):
    """Any model of timm that ends in a linear layer: timm/ and its name, optionally with the name of its weights.

    The size of such a model is unknown before it is built: jobs request the memory and time of a large one, and a job
    fails if the image size is wrong.
    """


@register(
    id="vit_b16_384",
    source="Dosovitskiy et al., ICLR 2021; weights Steiner et al., How to train your ViT, TMLR 2022, through timm",
    label="ViT-B/16 at 384",
    parameters={1000: 86_859_496},
    num_features=768,
    pretrained=True,
    image_size=384,
    min_size=384,
    max_size=384,
    macs=55_484_350_464,
    activations=134_381_378,
)
class ViTB16At384(TimmBackbone):
    """The network that FeDLaS fine-tunes on fine-grained data, timm's ``vit_base_patch16_384``.

    The class token behind the last norm is the feature, under a linear head. Images are normalised with the mean and
    deviation of their data set, as in the FeDLaS code, although the published weights were trained with 0.5 and 0.5.
    """

    def __init__(self, num_classes: int, pretrained: bool = False) -> None:
        super().__init__(num_classes, NAME, pretrained)
