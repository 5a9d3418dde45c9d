"""BalCAL: an overconfident learnable classifier balanced by an underconfident fixed one.

Ni et al., Balancing Two Classifiers via A Simplex ETF Structure for Model Calibration, CVPR 2025,
arXiv 2504.10007 (official code JianiNi/BalCAL, ``WideResNet_BalCAL`` and ``BalCAL_models``).
"""

import math
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrid.backbones.base import Backbone, Network, he_normal_
from calgrid.components.registry import register
from calgrid.errors import ConfigError
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import mix, weighted_loss
from calgrid.training.data import Batch, DeviceImages, Split
from calgrid.training.procedure import Procedure

#: rows per softmax computation
CHUNK = 65536


def simplex_frame(num_features: int, num_classes: int, scale: float) -> Tensor:
    """Draw a simplex equiangular tight frame (d, K), with the global generator.

    ``scale sqrt(K / (K - 1)) U (I - 1 1^T / K)``, U (d, K) with orthonormal columns: all columns
    have length ``scale``, and any two have the cosine ``-1 / (K - 1)``. Needs d >= K.
    """
    orthonormal, _ = torch.linalg.qr(torch.rand(num_features, num_classes, dtype=torch.float64))
    centred = orthonormal - orthonormal.mean(dim=1, keepdim=True)
    return (scale * math.sqrt(num_classes / (num_classes - 1)) * centred).float()


def class_scaling(labels: Tensor, num_classes: int) -> Tensor:
    """Factor (K,) of each class in a batch: ``sqrt((B / present classes) / n_c)``, and 1 for absent
    classes.
    """
    classes = torch.arange(num_classes, device=labels.device)
    counts = (labels.unsqueeze(1) == classes).sum(dim=0)
    present = counts > 0
    return torch.where(present, (len(labels) / present.sum() / counts.clamp_min(1)).sqrt(), 1.0)


def accuracy_and_confidence(
    first: Tensor, second: Tensor, labels: Tensor, weight: float
) -> tuple[float, float]:
    """Accuracy and mean largest probability of ``weight first + (1 - weight) second`` (N, K)."""
    correct, confidence = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.float64)
    for a, b, y in zip(first.split(CHUNK), second.split(CHUNK), labels.split(CHUNK), strict=True):
        top = (weight * a + (1.0 - weight) * b).softmax(dim=1).max(dim=1)
        correct = correct + (top.indices == y).sum()
        confidence = confidence + top.values.double().sum()
    return float(correct) / len(labels), float(confidence) / len(labels)


def balancing_weight(
    first: Tensor, second: Tensor, labels: Tensor, ratio: float, tolerance: float = 1e-4
) -> float:
    """Weight at which the mean confidence of the mixed logits (N, K) is ``ratio`` times their
    accuracy.

    1 if the first logits alone are less confident; else the last midpoint of a bisection of [0, 1].
    """
    accuracy, confidence = accuracy_and_confidence(first, second, labels, 1.0)
    if ratio * accuracy > confidence:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > tolerance:
        middle = (low + high) / 2
        accuracy, confidence = accuracy_and_confidence(first, second, labels, middle)
        low, high = (middle, high) if ratio * accuracy > confidence else (low, middle)
    return middle


WIDEST_ADAPTOR = 512


class Adaptor(nn.Module):
    """Residual bottleneck block ``g + Conv(ReLU(BN(Conv(ReLU(BN(g))))))`` of 3x3 convolutions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        inner = min(channels // 2, WIDEST_ADAPTOR)
        self.branch = nn.Sequential(
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            nn.Conv2d(channels, inner, 3, padding=1, bias=False),
            nn.BatchNorm2d(inner),
            nn.ReLU(),
            nn.Conv2d(inner, channels, 3, padding=1, bias=False),
        )
        he_normal_(self)

    def forward(self, maps: Tensor) -> Tensor:
        """Map (N, C, H, W) to the same shape."""
        return maps + self.branch(maps)


class BalancedHeads(Network):
    """A backbone with its linear head, and a second head: an adaptor with a fixed simplex frame.

    Attributes
    ----------
    frame : (d, K), the fixed classifier; a buffer, so that checkpoints contain it.
    """

    frame: Tensor

    def __init__(self, backbone: Backbone, num_classes: int, scale: float) -> None:
        super().__init__()
        channels = map_channels(backbone)
        self.backbone = backbone
        self.adaptor = Adaptor(channels)
        self.activation = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.register_buffer("frame", simplex_frame(backbone.num_features, num_classes, scale))

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return linear logits (N, K), unit vectors (N, d) for the frame, and penultimate features
        (N, d).
        """
        maps = images
        for stage in self.backbone.stages:
            maps = stage(maps)
        adapted = self.backbone.pool(self.activation(self.adaptor(maps)))
        features = self.backbone.pool(maps)
        return self.backbone.head(features), F.normalize(adapted.float(), dim=1), features


@torch.no_grad()
def map_channels(backbone: Backbone) -> int:
    """Channels of a backbone's last feature map.

    Raises
    ------
    ConfigError : the backbone has no feature maps with batch normalisation.
    """
    if not any(isinstance(module, nn.BatchNorm2d) for module in backbone.stages.modules()):
        raise ConfigError(
            "procedure 'balcal' puts a convolutional block on the last feature map, which this "
            "backbone does not have; use a convolutional backbone."
        )
    training = backbone.training
    backbone.eval()  # so that the zeros do not update BatchNorm statistics
    maps = torch.zeros(1, 3, 32, 32)
    for stage in backbone.stages:
        maps = stage(maps)
    backbone.train(training)
    return maps.shape[1]


@register(
    source="Ni et al., CVPR 2025, arXiv 2504.10007; JianiNi/BalCAL "
    "src/lightning_modules/One_Stage.py",
    losses="stateless",
    linear_head=False,
    cuda_graph=True,
    limits={"beta": "(0, inf)", "delta": "(0, 1]", "lambda0": "[0, 1]"},
)
class BalancedClassifiers(Procedure[BalancedHeads]):
    """Linear head and fixed simplex head on one backbone, mixed with a weight that is solved after
    each epoch.

    Simplex head: an adaptor on the last feature map, BN, ReLU and the backbone's pooling give e,
    and ``z_etf = e / ||e|| M0`` with ``M0 = beta sqrt(K / (K - 1)) U (I - 1 1^T / K)``. In training
    each column of M0 is scaled by ``E_c = sqrt((B / present classes) / n_c)`` of the batch (1 for
    absent classes)::

        L = lambda loss(z_lin, y) + (1 - lambda) loss(z_etf, y)
        z = lambda z_lin + (1 - lambda) e / ||e|| M0

    After each epoch lambda is solved from the training logits of both heads: 1 if delta x accuracy
    of the linear head exceeds its mean confidence, else by bisection to 1e-4 such that both are
    equal for the mixed logits. The paper calls delta the target ratio and the weight gamma.

    Differences. The official code returns the last midpoint with a smaller gap than the linear
    head; we return the final one (the same limit). It keeps M0 outside the checkpoint; here it is a
    buffer. It uses a pre-activation WRN with additional BN and ReLU in the linear branch; our
    backbones end with an activation, so this branch is unchanged and the adaptor takes activated
    maps. Inner width of the adaptor: half the channels as in the official code, at most 512.
    BatchNorm keeps the momentum of the backbone (official: 0.01).

    The logits of an epoch take 8 N K bytes on the device (160 MB for Tiny-ImageNet) and in the
    resume state.

    Parameters
    ----------
    beta : length of the columns of M0, above 0.
    delta : target ratio of mean confidence to accuracy, in (0, 1].
    lambda0 : weight of the linear head in the first epoch, in [0, 1].
    """

    resumed = ("_linear", "_simplex")
    #: weight of the linear head
    saved = MappingProxyType({"lambda": "_weight"})

    def __init__(self, *, beta: float = 1.0, delta: float = 0.95, lambda0: float = 0.8) -> None:
        super().__init__()
        self.beta = beta
        self.delta = delta
        self._weight = lambda0

    def build_model(self, backbone: Backbone, num_classes: int) -> BalancedHeads:
        """Add adaptor and simplex frame to the backbone.

        Raises
        ------
        ConfigError : fewer features than classes, or no feature maps.
        """
        if backbone.num_features < num_classes:
            raise ConfigError(
                "procedure 'balcal' needs at least as many features as classes, but the backbone "
                f"has {backbone.num_features} features for {num_classes} classes; use a wider "
                "backbone."
            )
        return BalancedHeads(backbone, num_classes, self.beta)

    def splits(
        self, model: BalancedHeads, train: DeviceImages, val: DeviceImages
    ) -> tuple[Split, Split]:
        """Store the training labels, needed to solve lambda, and allocate memory for an epoch's
        logits of both heads.
        """
        self._labels = train.labels
        shape = (len(train), model.frame.shape[1])
        self._linear = torch.full(shape, math.nan, device=train.labels.device)
        self._simplex = torch.full(shape, math.nan, device=train.labels.device)
        return train, val

    def forward_loss(self, model: BalancedHeads, loss: Loss, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the mixed logits (B, K) and the weighted loss of both heads."""
        linear, directions, _ = model(batch.images)
        linear = linear.float()
        scaling = class_scaling(batch.labels, model.frame.shape[1])
        simplex = project(directions, model.frame * scaling)
        self._linear.index_copy_(0, batch.index, linear.detach())
        self._simplex.index_copy_(0, batch.index, simplex.detach())
        terms = [(self._weight, linear, batch.labels), (1.0 - self._weight, simplex, batch.labels)]
        total = weighted_loss(loss, terms, index=batch.index)
        return mix(linear, project(directions, model.frame), self._weight), total

    def end_epoch(
        self, model: BalancedHeads, epoch: int, means: Mapping[str, float]
    ) -> dict[str, float]:
        """Solve lambda; return it with accuracy and mean confidence of the linear head."""
        seen = ~self._linear[:, 0].isnan()  # without a dropped last batch
        linear, simplex, labels = self._linear[seen], self._simplex[seen], self._labels[seen]
        self._linear.fill_(math.nan)
        accuracy, confidence = accuracy_and_confidence(linear, simplex, labels, 1.0)
        self._weight = balancing_weight(linear, simplex, labels, self.delta)
        return {
            "lambda": self._weight,
            "linear_accuracy": accuracy,
            "linear_confidence": confidence,
        }

    def predict(self, model: BalancedHeads, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the mixed logits (B, K) and the linear head's features (B, d)."""
        linear, directions, features = model(batch.images)
        return mix(linear.float(), project(directions, model.frame), self._weight), features


def project(directions: Tensor, frame: Tensor) -> Tensor:
    """Logits (N, K) of unit vectors (N, d), in float32 because their range is only a few tenths."""
    with torch.autocast(directions.device.type, enabled=False):
        return directions @ frame
