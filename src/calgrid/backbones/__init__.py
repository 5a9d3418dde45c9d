"""Networks by identifier: ``features(x)`` gives penultimate features, ``head`` turns them into
logits.

``calgrid new backbone my_backbone`` writes a new one, ``backbones/my_backbone.py``, and its test.
Several that differ by numbers may share a file, each a class with ``@register(id=...)``.
"""

from typing import TYPE_CHECKING, Any

from calgrid.backbones.catalogue import describe
from calgrid.components.registry import load
from calgrid.errors import ConfigError
from calgrid.optional import say_extra

if TYPE_CHECKING:
    from calgrid.backbones.base import Backbone

__all__ = ["Backbone", "build_backbone", "planned_backbone"]


def __getattr__(name: str) -> Any:
    """Import ``Backbone`` at its first use, because planning must not import torch."""
    if name != "Backbone":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with say_extra():
        from calgrid.backbones.base import Backbone  # noqa: PLC0415
    return Backbone


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def build_backbone(id: str, num_classes: int, pretrained: bool = False) -> "Backbone":
    """Return a network with random weights (from the global torch generator).

    Parameters
    ----------
    id : registered identifier, for example ``"resnet20"``, or ``"timm/"`` and the name of a model
        of timm.
    num_classes : K, at least 2.
    pretrained : start from published weights; only for backbones registered with
        ``pretrained=True``. Their head is kept where it has K classes, else it is new.

    Raises
    ------
    ConfigError : unknown ``id``, fewer than two classes, or ``pretrained`` where no weights are
        published.
    DataError : published weights are not there and cannot be downloaded, or are not the right ones.
    """
    if not describe(id).info["pretrained"] and pretrained:
        raise ConfigError(f"Backbone '{id}' has no pretrained weights; set pretrained to false.")
    return planned_backbone(id, num_classes, pretrained)


def planned_backbone(id: str, num_classes: int, pretrained: bool = False) -> "Backbone":
    """Return the network of a plan, which has checked its name; see :func:`build_backbone`."""
    if num_classes < 2:
        raise ConfigError(f"A backbone needs num_classes of at least 2, got {num_classes}.")
    backbone = load("backbone", id)
    arguments: list[Any] = [id.partition("/")[2]] if backbone.registered.get("library") else []
    if backbone.registered.get("pretrained"):
        arguments.append(pretrained)
    return backbone(num_classes, *arguments)
