"""Base class of procedures. Each method is a hook of the training loop."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic

import numpy as np
import torch
from torch import nn
from typing_extensions import TypeVar

from calgrid.backbones.base import Backbone, Network
from calgrid.components.options import Options
from calgrid.components.registry import set_options
from calgrid.losses.base import Loss
from calgrid.training.data import Batch, DeviceImages, Split

State = Mapping[str, torch.Tensor]
#: state of a procedure by name
Values = Mapping[str, torch.Tensor | float]
#: network of a procedure: the backbone, unless it adds something to it
Model = TypeVar("Model", bound=Network, default=Backbone)


@dataclass(frozen=True)
class Training:
    """Facts of the run for a procedure.

    Attributes
    ----------
    seed : seed of the run, from which all random numbers derive by name.
    epochs : epochs of this stage.
    augmented : whether the protocol augments the training images.
    folder : of the resume state; other files written there also last until the run is complete.
    """

    seed: int
    epochs: int
    augmented: bool
    folder: Path


class Procedure(Generic[Model]):
    """Plain training of the whole network; procedures override some hooks.

    The global torch generator is seeded before each training step from the run's seed, epoch and
    step, so that random numbers of hooks are the same after an interruption.

    Attributes
    ----------
    last_terms : additional loss terms of the last step, detached scalars, means over the batch;
        columns ``train_<name>`` of the history.
    training : facts of the run, from :meth:`begin_training` on.
    resumed : attributes, tensors or numbers, that an interrupted run saves and restores.
    saved : numbers that predictions need: their names in checkpoints -> attributes.
    """

    registered: ClassVar[Options] = {}
    resumed: ClassVar[tuple[str, ...]] = ()
    saved: ClassVar[Mapping[str, str]] = {}
    training: Training

    def __init__(self, **options: Any) -> None:
        set_options(self, options)
        self.last_terms: dict[str, torch.Tensor] = {}

    @property
    def linear_head(self) -> bool:
        """Whether the logits are a linear function of the exported features."""
        return bool(self.registered.get("linear_head", True))

    def build_model(self, backbone: Backbone, num_classes: int) -> Network:
        """Return the network to train, with random weights.

        Parameters
        ----------
        backbone : ``features(x) -> (N, d)``, ``stages``, ``pool``, ``head``, ``num_features``.
        """
        return backbone

    def load_first_stage(self, model: Model, state: State) -> None:
        """Load weights of the first stage (second stages only)."""

    def begin_training(self, model: Model, training: Training) -> None:
        """Prepare the run, once per process, before the state of an interrupted run is restored."""

    def splits(self, model: Model, train: DeviceImages, val: DeviceImages) -> tuple[Split, Split]:
        """Return the splits for training and validation."""
        return train, val

    def parameters(self, model: Model) -> Iterable[nn.Parameter]:
        """Trained parameters of the network (parameters of the loss are added)."""
        return model.parameters()

    def search_rates(self) -> Sequence[float]:
        """Return the learning rates, as shares of the protocol's, of epochs after the protocol's.

        Such an epoch begins without momentum, and has neither the protocol's schedule nor its
        lookahead. Their number is the value of the option that the fact ``search_epochs`` names.
        """
        return ()

    def begin_epoch(self, model: Model, epoch: int) -> None:
        """Prepare an epoch: set the training mode, draw masks, ...

        Called again when a run resumes within the epoch, so it must depend only on ``epoch`` and
        saved state.
        """
        model.train()

    def draw(self, batch: Batch) -> Batch:
        """Return the batch of a step after its draws on the CPU and reads from the device: mixed
        images, or tensors in ``drawn``. Never part of a CUDA graph.
        """
        return batch

    def forward_loss(
        self, model: Model, loss: Loss, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and the scalar loss of a training batch of :meth:`draw`."""
        features = self.features(model, batch)
        logits = model.head(features)
        return logits, loss(logits, batch.labels, features=features, index=batch.index)

    def correct(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Return the correctness of each training sample, (B,), for the training accuracy."""
        return logits.argmax(dim=1) == batch.labels

    def before_step(self, model: Model) -> None:
        """Change gradients after the backward pass, before clipping."""

    def after_step(self, model: Model) -> None:
        """Change weights after the optimiser's step."""

    def end_epoch(self, model: Model, epoch: int, means: Mapping[str, float]) -> dict[str, float]:
        """Update the procedure's state after an epoch, before validation; return diagnostics for
        the history.

        Parameters
        ----------
        means : over the epoch's training samples: ``train_loss``, ``train_accuracy``,
            ``train_confidence``, terms.
        """
        return {}

    def scores(self, epoch: int, row: Mapping[str, float]) -> dict[str, float]:
        """Return scores of the network after an epoch, by checkpoint that an epoch competes for.

        A checkpoint is the epoch of its highest score, the first of equal ones; ``last``, if it has
        no scores, is the last epoch.

        Parameters
        ----------
        row : the epoch's row of the history.
        """
        return {"best": row["val_accuracy"], "refined": -row["val_refinement"]}

    def predict(self, model: Model, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) and penultimate features (B, d) of a network in evaluation mode."""
        features = self.features(model, batch)
        return model.head(features), features

    @staticmethod
    def features(model: Network, batch: Batch) -> torch.Tensor:
        """Penultimate features (B, d): precomputed in the batch, or from the network."""
        return model.features(batch.images) if batch.features is None else batch.features

    def state_dict(self) -> Values:
        """State for predictions, saved with every checkpoint: tensors and numbers."""
        # torch alone would round a number to single precision
        held = {name: np.asarray(getattr(self, each)) for name, each in self.saved.items()}
        return {name: torch.from_numpy(value) for name, value in held.items()}

    def load_state_dict(self, state: Values) -> None:
        """Restore the state of :meth:`state_dict`."""
        for name, held in self.saved.items():
            setattr(self, held, torch.as_tensor(state[name]).item())

    def resume_state(self) -> Values:
        """Additional state for resuming: tensors and numbers."""
        return {name: getattr(self, name) for name in self.resumed}

    def load_resume_state(self, state: Values) -> None:
        """Restore the state of :meth:`resume_state`."""
        for name, value in state.items():
            if isinstance(value, torch.Tensor):
                getattr(self, name).copy_(value)
            else:
                setattr(self, name, value)
