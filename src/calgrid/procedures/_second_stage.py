"""Second stages: frozen features of a trained network under a new head."""

from collections.abc import Iterable, Iterator

import torch
from torch import nn

from calgrid.backbones.base import Backbone, Network
from calgrid.errors import StateError
from calgrid.training.data import Batch, Split
from calgrid.training.procedure import Procedure, State, Training

#: images of one pass that fills a table of features
FEATURE_BATCH = 1024


class FrozenFeatures(Network):
    """A network whose body is frozen: no gradient, and BatchNorm keeps its running statistics.

    ``requires_grad=False`` alone is not enough: in training mode BatchNorm would use batch statistics and let its
    buffers drift, so the body stays in evaluation mode always.
    """

    def __init__(self, body: Backbone, head: nn.Module) -> None:
        super().__init__()
        self.num_features = body.num_features
        setattr(body, "head", nn.Identity())  # noqa: B010  (the first stage's head is thrown away: no Linear any more)
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


class FeatureTable:
    """Features of a split, computed once, in the place of its images.

    Parameters
    ----------
    model : what computes the features; its body must be frozen.
    split : the images; they are taken as they are, without augmentation.
    """

    def __init__(self, model: FrozenFeatures, split: Split) -> None:
        model.eval()
        self.labels = split.labels
        self._features = torch.cat([model.features(batch.images) for batch in split.batches(FEATURE_BATCH)])

    def __len__(self) -> int:
        return len(self.labels)

    def batches(self, size: int) -> Iterator[Batch]:
        """All samples in order."""
        for begin in range(0, len(self), size):
            yield self.batch(torch.arange(begin, min(begin + size, len(self)), device=self.labels.device))

    def batch(
        self, index: torch.Tensor, crop_padding: int = 0, flip: bool = False, rng: torch.Generator | None = None
    ) -> Batch:
        """Features of the samples at ``index``; nothing is left to augment."""
        return Batch(self._features.new_empty(0), self.labels[index], index, self._features[index])


class SecondStage(Procedure[FrozenFeatures]):
    """A new head on the frozen features of a first stage; subclasses say which head.

    The features of the validation images are computed once, and those of the training images too where the protocol
    does not augment them: the same numbers in a fraction of the time.

    Parameters
    ----------
    cached : compute the features of the training images once under any protocol: without the augmentation, so
        another variant of the method, and a faster one.
    """

    def __init__(self, *, cached: bool = False) -> None:
        super().__init__()
        self.cached = cached
        self._augmented = True

    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """Return the head to train, freshly drawn: features (N, d) -> logits (N, K)."""
        raise NotImplementedError

    def build_model(self, backbone: Backbone, num_classes: int) -> FrozenFeatures:
        """Freeze the body of ``backbone`` and put the new head on it."""
        return FrozenFeatures(backbone, self.build_head(backbone.num_features, num_classes))

    def load_first_stage(self, model: FrozenFeatures, state: State) -> None:
        """Take the body's weights and buffers from the first stage.

        Raises StateError: the first stage's network is not the one that the body was built as.
        """
        body = {name: tensor for name, tensor in state.items() if not name.startswith("head.")}
        load_checked(model.body, body, "backbone")

    def begin_training(self, model: FrozenFeatures, training: Training) -> None:
        """Remember whether the protocol augments."""
        self._augmented = training.augmented

    def splits(self, model: FrozenFeatures, train: Split, val: Split) -> tuple[Split, Split]:
        """Features in the place of images wherever that changes nothing, or ``cached`` allows it."""
        once = self.cached or not self._augmented
        return FeatureTable(model, train) if once else train, FeatureTable(model, val)

    def parameters(self, model: FrozenFeatures) -> Iterable[nn.Parameter]:
        """Only the head is trained."""
        return model.head.parameters()


def load_checked(module: nn.Module, state: State, what: str) -> None:
    """Load weights and buffers into a module.

    Raises StateError: names or shapes differ from those of ``what`` the module is.
    """
    try:
        module.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise StateError(f"The first stage's checkpoint does not fit this {what}: {reason}") from None
