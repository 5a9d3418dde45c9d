"""Second stages: frozen features of a trained network under a new head."""

from collections.abc import Iterable

import torch
from torch import nn

from calgrid.errors import StateError
from calgrid.procedures._base import Procedure, State


class FrozenFeatures(nn.Module):
    """A network whose body is frozen: no gradient, and BatchNorm keeps its running statistics.

    ``requires_grad=False`` alone is not enough: in training mode BatchNorm would use batch statistics and let its
    buffers drift, so the body stays in evaluation mode always.
    """

    def __init__(self, body: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.num_features = body.num_features
        body.head = nn.Identity()  # the first stage's head is thrown away
        self.body = body.requires_grad_(False)
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


class SecondStage(Procedure):
    """A new head on the frozen features of a first stage; subclasses say which head."""

    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """Return the head to train, freshly drawn: features (N, d) -> logits (N, K)."""
        raise NotImplementedError

    def build_model(self, backbone: nn.Module, num_classes: int) -> FrozenFeatures:
        """Freeze the body of ``backbone`` and put the new head on it."""
        return FrozenFeatures(backbone, self.build_head(backbone.num_features, num_classes))

    def load_first_stage(self, model: FrozenFeatures, state: State) -> None:
        """Take the body's weights and buffers from the first stage.

        Raises
        ------
        StateError : the first stage's network is not the one that the body was built as.
        """
        body = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        try:
            model.body.load_state_dict(body)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise StateError(f"The first stage's checkpoint does not fit this backbone: {reason}") from None

    def parameters(self, model: FrozenFeatures) -> Iterable[nn.Parameter]:
        """Only the head is trained."""
        return model.head.parameters()
