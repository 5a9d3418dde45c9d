"""MyComponent: say here which paper or code this is."""

from torch import nn

from calgrid.backbones import Backbone
from calgrid.components.registry import register


@register(
    source="authors, title, year",
    label="MyComponent",  # its name in tables
)
class MyComponent(Backbone):
    """Two convolutions and the mean over all places."""

    def __init__(self, num_classes: int) -> None:
        stages = [nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()), nn.Conv2d(16, 8, 1)]
        pool = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        super().__init__(stages, pool, 8, num_classes)  # 8 features enter the linear head
