"""Networks by identifier: ``features(x)`` gives penultimate features, ``head`` turns them into logits.

A new backbone is a file ``backbones/<id>.py``, or a class with ``@register(id=...)`` in the file of its family; this
one is two convolutions and a mean::

    from torch import nn

    from calgrid.backbones import Backbone
    from calgrid.registry import register

    @register(
        source="an example",
        label="Tiny",
        parameters={10: 674},
        pretrained=False,
        num_features=8,
        image_size=32,
        min_size=1,
        macs=573_520,
        activations=27_656,
    )
    class Tiny(Backbone):
        def __init__(self, num_classes: int) -> None:
            stages = [nn.Conv2d(3, 16, 3, padding=1), nn.Conv2d(16, 8, 1)]
            super().__init__(stages, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), 8, num_classes)

"""

from typing import TYPE_CHECKING, Any

from calgrid.backbones._catalogue import describe
from calgrid.errors import ConfigError
from calgrid.lazy import lazy_names
from calgrid.registry import load

if TYPE_CHECKING:
    from calgrid.backbones.base import Backbone

__all__ = ["Backbone", "build_backbone"]

__getattr__ = lazy_names(__name__, {"Backbone": "calgrid.backbones.base"})


def build_backbone(id: str, num_classes: int, pretrained: bool = False) -> "Backbone":
    """Build a network with freshly drawn weights (global torch generator; seed it before).

    Parameters
    ----------
    id : registered identifier, for example ``"resnet20"``, or ``"timm/"`` and the name of a model of timm.
    num_classes : K, at least 2.
    pretrained : start from published weights; only for backbones registered with ``pretrained=True``. Their head is
        kept where it has K classes, else it is new.

    Raises
    ------
    ConfigError : unknown ``id``, fewer than two classes, or ``pretrained`` where no weights are published.
    DataError : published weights are not there and cannot be downloaded, or are not the right ones.
    """
    spec = describe(id)
    if num_classes < 2:
        raise ConfigError(f"A backbone needs num_classes of at least 2, got {num_classes}.")
    if pretrained and not spec.info["pretrained"]:
        raise ConfigError(f"Backbone '{id}' has no pretrained weights: set pretrained to false.")
    arguments: list[Any] = [id.partition("/")[2]] if spec.info.get("library", False) else []
    if spec.info["pretrained"]:
        arguments.append(pretrained)
    return load("backbone", id)(num_classes, *arguments)
