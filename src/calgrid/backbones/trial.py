"""Trial of a network on the device ``meta``, on which shapes alone are computed."""

import torch

from calgrid.backbones import build_backbone
from calgrid.errors import CalgridError, ConfigError


def check_images(id: str, n_classes: int, size: tuple[int, int]) -> None:
    """Raise ConfigError unless a backbone takes images of a height and width, and has features and
    logits of the right shapes.
    """
    with torch.device("meta"):
        try:
            network = build_backbone(id, n_classes).eval()
            features = network.features(torch.empty(2, 3, *size))
            if features.ndim == 2 and features.shape[1] != network.num_features:
                said = f"but its num_features is {network.num_features}"
                raise ValueError(f"it has {features.shape[1]} features, {said}")
            logits = network.head(features)
            if features.ndim != 2 or logits.shape != (2, n_classes):
                shapes = f"{tuple(features.shape)} and {tuple(logits.shape)}"
                raise ValueError(
                    f"features and logits must be (2, d) and (2, {n_classes}), got {shapes}"
                )
        except CalgridError:
            raise
        except Exception as error:  # layers raise any error
            reason = " ".join(str(error).split())[:200].replace(". ", "; ")
            raise ConfigError(
                f"Backbone '{id}' does not take images of {size[0]}x{size[1]} pixels "
                f"({type(error).__name__}: {reason}); use another backbone or images of another "
                "size, or correct the backbone if it is your own."
            ) from error
