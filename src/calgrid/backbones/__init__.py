"""Networks by identifier: ``features(x)`` gives penultimate features, ``head`` turns them into logits."""

from typing import TYPE_CHECKING

from calgrid.errors import ConfigError
from calgrid.registry import load, spec

if TYPE_CHECKING:
    from calgrid.backbones._base import Backbone

__all__ = ["build_backbone"]


def build_backbone(id: str, num_classes: int, pretrained: bool = False) -> "Backbone":
    """Build a network with freshly drawn weights (global torch generator; seed it before).

    Parameters
    ----------
    id : registered identifier, for example ``"resnet20"``.
    num_classes : K, at least 2.
    pretrained : start from published weights; only for backbones registered with ``pretrained=True``.

    Raises
    ------
    ConfigError : unknown ``id``, fewer than two classes, or ``pretrained`` where no weights are published.
    """
    if pretrained and not spec("backbone", id).info["pretrained"]:
        raise ConfigError(f"Backbone '{id}' has no pretrained weights: set pretrained to false.")
    return load("backbone", id)(num_classes)
