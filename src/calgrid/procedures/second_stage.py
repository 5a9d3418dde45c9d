"""Second stages: a new head on frozen features of a trained network."""

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from calgrid.backbones.base import Backbone, Network
from calgrid.errors import StateError
from calgrid.training.data import DeviceImages, FeatureTable, Split
from calgrid.training.procedure import Procedure, State

#: facts of the second stages
FACTS: Mapping[str, Any] = {
    "second_stage": True,
    "loss": "ce",
    "linear_head": False,
    "cuda_graph": True,
}


class FrozenFeatures(Network):
    """A network with a frozen body: no gradients, fixed BatchNorm statistics.

    The body always stays in evaluation mode, because in training mode BatchNorm would use batch
    statistics and update its buffers even with ``requires_grad=False``.
    """

    def __init__(self, body: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.num_features = body.num_features
        # replaces the first stage's head, which is no Identity
        setattr(body, "head", nn.Identity())  # noqa: B010
        self.body: Backbone = body.requires_grad_(False)
        self.head = head

    def train(self, mode: bool = True) -> "FrozenFeatures":
        """Set the mode of the head; the body stays in evaluation mode."""
        super().train(mode)
        self.body.eval()
        return self

    @torch.no_grad()
    def features(self, x: torch.Tensor) -> torch.Tensor:
        """Penultimate features (N, d) of images (N, C, H, W)."""
        return self.body.features(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Logits (N, K) of images (N, C, H, W)."""
        return self.head(self.features(x))


class SecondStage(Procedure[FrozenFeatures]):
    """A new head on the frozen features of a first stage; subclasses define the head.

    Features of the validation images are computed once, and those of the training images too if the
    protocol has no augmentation: the same results in a fraction of the time.

    Parameters
    ----------
    cached : always compute the features of the training images once, without augmentation: a faster
        variant of the method.
    """

    cached: bool = False

    @abstractmethod
    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """Return the head to train, with random weights: features (N, d) -> logits (N, K)."""
        raise NotImplementedError

    def build_model(self, backbone: Backbone, num_classes: int) -> FrozenFeatures:
        """Freeze the body of ``backbone`` and add the new head."""
        return FrozenFeatures(backbone, self.build_head(backbone.num_features, num_classes))

    def load_first_stage(self, model: FrozenFeatures, state: State) -> None:
        """Load the body's weights and buffers from the first stage.

        Raises
        ------
        StateError : the first stage's network is not the one that the body was built as.
        """
        body = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        load_checked(model.body, body, "backbone")

    def splits(
        self, model: FrozenFeatures, train: DeviceImages, val: DeviceImages
    ) -> tuple[Split, Split]:
        """Replace images by features if results are equal, or with ``cached``."""
        once = self.cached or not self.training.augmented
        return FeatureTable(model, train) if once else train, FeatureTable(model, val)

    def parameters(self, model: FrozenFeatures) -> Iterable[nn.Parameter]:
        """Only the head is trained."""
        return model.head.parameters()


def load_checked(module: nn.Module, state: State, what: str) -> None:
    """Load weights and buffers into a module.

    Raises
    ------
    StateError : names or shapes differ from the module's, called ``what``.
    """
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise StateError(
            f"The first stage's checkpoint does not fit this {what}: {reason}"
        ) from None
