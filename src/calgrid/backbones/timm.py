"""Any model of the library timm, written ``timm/<name>``, for example ``timm/convnext_tiny.fb_in1k``."""

from calgrid.backbones._timm import TimmBackbone
from calgrid.registry import register


@register(
    source="Wightman, PyTorch Image Models (timm); each model names its own paper there",
    label="timm",
    library=True,
    parameters={},
    pretrained=True,
)
class Timm(TimmBackbone):
    """Any model of timm that ends in a linear layer: write timm/ and its name there, with or without its weights'.

    Nothing is known of such a model before it is built: jobs ask for the memory and time of a large one, and images of
    a wrong size are refused by the job that meets them.
    """
