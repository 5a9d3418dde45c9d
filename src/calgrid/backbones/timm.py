"""Any model of the library timm as ``timm/<name>``, for example ``timm/convnext_tiny.fb_in1k``, and
``vit_b16_384``.

A model is built by timm itself, with its own initialisation; published weights come from the
Hugging Face hub through timm, which reads tensors alone. Features are what timm calls pre-logits.
"""

from collections.abc import Mapping
from typing import Any

import timm
from torch import Tensor, nn

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.errors import ConfigError, DataError

#: fixed weights, because the default weights of timm may change
NAME = "vit_base_patch16_384.augreg_in21k_ft_in1k"


class TimmBackbone(Backbone):
    """A model of timm, by its name there.

    The whole trunk is one stage, because the families have no common structure.
    """

    def __init__(self, num_classes: int, name: str, pretrained: bool = False) -> None:
        model = create(name, num_classes, pretrained)
        head = model.get_classifier() if hasattr(model, "get_classifier") else None
        if not isinstance(head, nn.Linear) or not hasattr(model, "forward_head"):
            raise ConfigError(
                f"Backbone 'timm/{name}' does not end in one linear layer on its features; choose "
                "another model."
            )
        theirs = model.state_dict(keep_vars=True)
        model.reset_classifier(0)
        super().__init__(
            [Trunk(name, model)], PreLogits(model), head.in_features, num_classes, head
        )
        self.keep_names(theirs)
        self._published = {
            "path": name,
            "url": str(model.pretrained_cfg.get("hf_hub_id") or "timm"),
        }

    def published(self) -> Mapping[str, object]:
        """Return the name of the weights in timm and their source there; see :class:`Backbone`."""
        return self._published


def create(name: str, num_classes: int, pretrained: bool) -> Any:
    """Build a model of timm.

    Raises
    ------
    ConfigError : there are no such weights.
    DataError : its published weights are neither in the cache nor can be downloaded.
    """
    try:
        published = timm.get_pretrained_cfg(name)
    except RuntimeError as error:
        raise ConfigError(f"Unknown timm model '{name}': {str(error).rstrip('.')}.") from None
    if not pretrained:
        return timm.create_model(name, num_classes=num_classes)
    if published is None or not published.has_weights:
        raise ConfigError(
            f"Backbone 'timm/{name}' has no pretrained weights; set pretrained to false."
        )
    try:
        return timm.create_model(name, pretrained=True, num_classes=num_classes)
    except Exception as error:  # several libraries with their own errors
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise DataError(
            f"The published weights of 'timm/{name}' could not be loaded ({reason}); run once "
            f"where '{published.hf_hub_id or published.url}' can be reached, or bring the cache of "
            "the Hugging Face hub that holds it (environment variable HF_HOME)."
        ) from error


def check_weights(
    id: str,
    n_classes: int,
    size: tuple[int, ...],
    constants: tuple[tuple[float, ...], tuple[float, ...]] | None = None,
) -> None:
    """Raise ConfigError unless the published weights of ``timm/NAME`` are for these images.

    Parameters
    ----------
    size : height and width. constants : their mean and standard deviation, if these are checked.
    """
    config = timm.get_pretrained_cfg(id.removeprefix("timm/"))
    if config is None or not config.has_weights:
        raise ConfigError(f"Backbone '{id}' has no published weights; use another model.")
    differences: dict[str, tuple[Any, Any]] = {"classes": (config.num_classes, n_classes)}
    if config.fixed_input_size:
        differences["pixels"] = (tuple(config.input_size[1:]), size)
    if constants is not None:
        differences["mean"] = (tuple(config.mean), constants[0])
        differences["standard deviation"] = (tuple(config.std), constants[1])
    for what, (theirs, ours) in differences.items():
        if theirs != ours:
            raise ConfigError(
                f"Backbone '{id}': its published weights are for images with {what} {theirs}, and "
                f"those of the data set have {ours}; use another model."
            )


class Trunk(nn.Module):
    """All of a model before its pooling."""

    def __init__(self, name: str, model: Any) -> None:
        super().__init__()
        self.model = model
        self.name = name
        config = model.pretrained_cfg
        self.only_size: tuple[int, int] | None = None
        if config.get("fixed_input_size", False):
            self.only_size = tuple(config["input_size"][1:])

    def forward(self, x: Tensor) -> Tensor:
        """Map images ``(N, 3, H, W)`` to the last feature map, or tokens, of the family's shape."""
        if self.only_size is not None and tuple(x.shape[2:]) != self.only_size:
            height, width = x.shape[2:]
            raise ConfigError(
                f"Backbone 'timm/{self.name}' takes images of "
                f"{self.only_size[0]}x{self.only_size[1]} pixels only, and these have "
                f"{height}x{width}; use another backbone or images of another size."
            )
        return self.model.forward_features(x)


class PreLogits(nn.Module):
    """Pooling and all layers up to the classifier; its weights belong to the trunk."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._owner = [model]  # in a list, so that its weights are not listed twice

    def forward(self, maps: Tensor) -> Tensor:
        """Map what the trunk returns to features ``(N, d)``."""
        return self._owner[0].forward_head(maps, pre_logits=True)


@register(
    id="timm",
    source="Wightman, PyTorch Image Models (timm); each model names its own paper there",
    label="timm",
    library=True,
    parameters={},
    pretrained=True,
)
class Timm(TimmBackbone):
    """Any model of timm that ends in a linear layer: timm/ and its name, optionally with the name
    of its weights.

    The size of such a model is unknown before it is built: jobs request the memory and time of a
    large one, and a job fails if the image size is wrong.
    """


@register(
    id="vit_b16_384",
    source=(
        "Dosovitskiy et al., ICLR 2021; weights Steiner et al., How to train your ViT, TMLR 2022, "
        "through timm"
    ),
    label="ViT-B/16 at 384",
    parameters={1000: 86_859_496},
    pretrained=True,
    min_size=384,
    max_size=384,
)
class ViTB16At384(TimmBackbone):
    """The network that FeDLaS fine-tunes on fine-grained data, timm's ``vit_base_patch16_384``.

    The class token behind the last norm is the feature, under a linear head. Images are normalised
    with the mean and deviation of their data set, as in the FeDLaS code, although the published
    weights were trained with 0.5 and 0.5.
    """

    def __init__(self, num_classes: int, pretrained: bool = False) -> None:
        super().__init__(num_classes, NAME, pretrained)
