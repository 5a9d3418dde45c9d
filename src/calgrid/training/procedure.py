"""What the training loop asks of a procedure. Each method here is a hook; the loop itself exists once."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, Protocol

import torch
from torch import nn
from typing_extensions import TypeVar

from calgrid.backbones.base import Backbone, Network
from calgrid.training.data import Batch, Split

State = Mapping[str, torch.Tensor]
#: the network that a procedure trains: the backbone itself, unless it puts something on it
Model = TypeVar("Model", bound=Network, default=Backbone)


class LossFunction(Protocol):
    """What procedures ask of a :class:`~calgrid.losses.Loss`."""

    num_classes: int
    reduction: Literal["mean", "sum"]
    last_terms: dict[str, torch.Tensor]

    def __call__(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor,
        features: torch.Tensor | None = None,
        index: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the loss of a batch, a scalar."""
        ...


@dataclass(frozen=True)
class Training:
    """What a procedure is told of the run before it trains.

    Attributes
    ----------
    seed : of the run; whatever a procedure draws derives from it, by name.
    epochs : of this stage. samples : of the training split. num_classes : K.
    augmented : whether the protocol augments the training images.
    """

    seed: int
    epochs: int
    samples: int
    num_classes: int
    augmented: bool
    device: torch.device


class Procedure(Generic[Model]):
    """Plain training of the whole network; procedures override the hooks in which they differ.

    The global torch generator is seeded anew before each training step, from the run's seed, epoch and step: what a
    hook draws there is the same after an interruption.

    Attributes
    ----------
    last_terms : terms of the last step that the loss does not know, detached scalars, means over the batch; they
        join the history as ``train_<name>``.
    """

    registered: Mapping[str, Any] = {}

    def __init__(self) -> None:
        self.last_terms: dict[str, torch.Tensor] = {}

    @property
    def linear_head(self) -> bool:
        """Whether the logits are a linear layer on the exported features."""
        return bool(self.registered.get("linear_head", True))

    def build_model(self, backbone: Backbone, num_classes: int) -> Network:
        """Return the network to train, with freshly drawn weights.

        Parameters
        ----------
        backbone : ``features(x) -> (N, d)``, ``stages``, ``pool``, ``head``, ``num_features``.
        """
        return backbone

    def load_first_stage(self, model: Model, state: State) -> None:
        """Take over what the procedure needs of a first stage's weights (second stages only)."""

    def begin_training(self, model: Model, training: Training) -> None:
        """Prepare the run, once in a process, before state of an interrupted run is restored."""

    def splits(self, model: Model, train: Split, val: Split) -> tuple[Split, Split]:
        """Return what is trained and validated on in place of the images."""
        return train, val

    def parameters(self, model: Model) -> Iterable[nn.Parameter]:
        """Parameters of the network that are trained (those of the loss come on top)."""
        return model.parameters()

    def begin_epoch(self, model: Model, epoch: int) -> None:
        """Prepare an epoch: put the network into training mode, draw masks, ...

        Called again when a run resumes within the epoch, so it must depend on ``epoch`` and saved state alone.
        """
        model.train()

    def forward_loss(self, model: Model, loss: LossFunction, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and the scalar loss of a training batch."""
        features = self.features(model, batch)
        logits = model.head(features)
        return logits, loss(logits, batch.labels, features=features, index=batch.index)

    def correct(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return how right the arg max of each training sample is, (B,), for the training accuracy."""
        return logits.argmax(dim=1) == batch.labels

    def before_step(self, model: Model) -> None:
        """Change gradients after the backward pass, before they are clipped."""

    def after_step(self, model: Model) -> None:
        """Change weights after the optimiser's step."""

    def end_epoch(self, model: Model, epoch: int, means: Mapping[str, float]) -> dict[str, float]:
        """Update the procedure's state after an epoch, before it is validated; return diagnostics for the history.

        Parameters
        ----------
        means : over the epoch's training samples: ``train_loss``, ``train_accuracy``, ``train_confidence``, terms.
        """
        return {}

    def predict(self, model: Model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and penultimate features (B, d) of the network in evaluation mode."""
        features = self.features(model, batch)
        return model.head(features), features

    @staticmethod
    def features(model: Network, batch: Batch) -> torch.Tensor:
        """Penultimate features (B, d): those that the batch brings, or the network's."""
        return model.features(batch.images) if batch.features is None else batch.features

    def state_dict(self) -> dict[str, Any]:
        """State that predictions depend on, saved with every checkpoint: tensors and numbers."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state_dict` returned."""

    def resume_state(self) -> dict[str, Any]:
        """Further state that an interrupted run needs to go on, as tensors and numbers."""
        return {}

    def load_resume_state(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`resume_state` returned."""
