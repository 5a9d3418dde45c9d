"""What the training loop asks of a procedure. Each method here is a hook; the loop itself exists once."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from calgrid.training.data import Batch

State = Mapping[str, torch.Tensor]


class Procedure:
    """Plain training of the whole network; procedures override the hooks in which they differ."""

    def build_model(self, backbone: nn.Module, num_classes: int) -> nn.Module:
        """Return the network to train, with freshly drawn weights.

        Parameters
        ----------
        backbone : ``features(x) -> (N, d)``, ``head``, ``num_features``.
        """
        return backbone

    def load_first_stage(self, model: nn.Module, state: State) -> None:
        """Take over what the procedure needs of a first stage's weights (second stages only)."""

    def parameters(self, model: nn.Module) -> Iterable[nn.Parameter]:
        """Parameters of the network that are trained (those of the loss come on top)."""
        return model.parameters()

    def begin_epoch(self, model: nn.Module, epoch: int) -> None:
        """Prepare an epoch: put the network into training mode, draw masks, ...

        Called again when a run resumes within the epoch, so it must depend on ``epoch`` and saved state alone.
        """
        model.train()

    def forward_loss(self, model: nn.Module, loss: nn.Module, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and the scalar loss of a training batch."""
        features = model.features(batch.images)
        logits = model.head(features)
        return logits, loss(logits, batch.labels, features=features, index=batch.index)

    def end_epoch(self, model: nn.Module, epoch: int, accuracy: float) -> dict[str, float]:
        """Update the procedure's state after an epoch; return diagnostics for the history."""
        return {}

    def predict(self, model: nn.Module, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and penultimate features (B, d) of the network in evaluation mode."""
        features = model.features(images)
        return model.head(features), features

    def state_dict(self) -> dict[str, Any]:
        """State to save with resume state and checkpoint: tensors and numbers."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""
