"""Interface of all backbones: ordered stages, a pool, penultimate features and a linear head."""

import functools
from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import dropout


class Network(nn.Module):
    """Interface of the networks that procedures train: features, and a head that maps them to
    logits.
    """

    head: nn.Module

    def features(self, x: Tensor) -> Tensor:
        """Return penultimate features ``(N, d)`` of normalised images ``(N, 3, H, W)``."""
        raise NotImplementedError


class Backbone(Network):
    """A classifier written as ``head(pool(stages(x)))``.

    Facts in ``@register``, as literals:

    - ``label`` : its name in tables;
    - ``min_size`` : smallest side of images that it takes, and ``max_size`` the largest, if there
      is one; a network without this fact is tried with images of its data set before any job;
    - ``pretrained`` : True if it has published weights to start from; ``parameters`` is then
      needed: number of classes of these weights -> trainable parameters.

    Attributes
    ----------
    stages : stem first, then the resolution levels in order; composed they map images to the last
        feature map, and the output of each may be mixed or replaced on its own.
    pool : last feature map to features ``(N, d)``.
    head : the one linear layer from features to logits; a new one unless it is given.
    num_features : d, the width of the features.
    names : names of tensors in files of weights -> names here, where they differ.
    """

    head: nn.Linear
    stages: nn.ModuleList

    def __init__(
        self,
        stages: Iterable[nn.Module],
        pool: nn.Module,
        num_features: int,
        num_classes: int,
        head: nn.Linear | None = None,
    ) -> None:
        super().__init__()
        self.stages = nn.ModuleList(stages)
        self.pool = pool
        self.head = nn.Linear(num_features, num_classes) if head is None else head
        self.num_features = num_features
        self.names: dict[str, str] = {}

    def keep_names(self, theirs: Mapping[str, Tensor]) -> None:
        """Map tensor names of another network, whose layers this one reuses, to their names here.

        ``theirs`` is the other network's ``state_dict(keep_vars=True)``.
        """
        ours = {id(tensor): name for name, tensor in self.state_dict(keep_vars=True).items()}
        self.names = {name: ours[id(tensor)] for name, tensor in theirs.items()}

    def published(self) -> Mapping[str, object]:
        """Return where the published weights of this network come from, for a run's records; empty
        without any.
        """
        return {}

    def features(self, x: Tensor) -> Tensor:
        """Return penultimate features ``(N, d)`` of normalised images ``(N, 3, H, W)``.

        The result is a fresh tensor that nothing in the network writes to afterwards.
        """
        for stage in self.stages:
            x = stage(x)
        return self.pool(x)

    def forward(self, x: Tensor) -> Tensor:
        """Return logits ``(N, K)`` of normalised images ``(N, 3, H, W)``."""
        return self.head(self.features(x))


class ImageStatistics(nn.Module):
    """A layer whose weights are computed from training images before the training."""

    def read(self, batches: Iterable[Tensor]) -> None:
        """Compute the weights from batches of normalised training images ``(N, 3, H, W)``, in order
        and without augmentation.
        """
        raise NotImplementedError


def drop_features(backbone: Backbone, rate: float) -> None:
    """Put dropout before the head of a network, in training alone.

    A hook keeps the head one linear layer with the same tensor names, and features whole for
    losses. In the code of MbLS, dropout is a layer before the new head. Draws from torch's global
    generator of the device, like dropout layers.

    Parameters
    ----------
    rate : share of the features that are set to 0, in (0, 1); the others grow by ``1 / (1 -
        rate)``.
    """
    backbone.head.register_forward_pre_hook(functools.partial(_dropped, rate))


def _dropped(rate: float, head: nn.Module, inputs: tuple[Tensor]) -> Tensor:
    return dropout(inputs[0], rate, head.training)


@torch.no_grad()
def he_normal_(model: nn.Module) -> None:
    """Draw every convolution from N(0, 2 / fan_out), in place, with the global torch generator.

    He et al. (ICCV 2015, eq. 14): the backward form, which keeps the scale of gradients from layer
    to layer. Batch normalisation starts at the identity and linear layers keep their own
    initialisation.
    """
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
