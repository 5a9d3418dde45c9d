"""Networks of cifar10-airbench: a whitening convolution and three short groups, for fast training.

The ids end in the channels of the first group. The protocol ``cifar10_cpu`` is their recipe.
"""

import itertools
from collections.abc import Iterable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from calgrid.backbones._resnet import MapMaximum
from calgrid.backbones.base import Backbone, ImageStatistics
from calgrid.components.options import Options
from calgrid.components.registry import register

FACTS: Options = {
    "source": "Jordan, 94% on CIFAR-10 in 3.29 Seconds on a Single GPU, arXiv 2404.00498; "
    "github.com/KellerJordan/cifar10-airbench legacy/airbench94.py",
    "pretrained": False,
    "min_size": 9,
}
#: side of the squares of pixels that the first layer whitens, and values in one
SIDE = 2
VALUES = 3 * SIDE**2
#: number of training images for their covariance
IMAGES = 5000
#: added to its eigenvalues
LEAST_EIGENVALUE = 5e-4
#: factor of the features; it divides the learning rate of the head by its square
SCALE = 1 / 9


class Whitening(ImageStatistics):
    """Convolution with squares of 2x2 pixels to both signs of their principal components, each with
    mean square 1.

    Without padding and without bias. The weights (24, 3, 2, 2) are a buffer: they are computed from
    training images, and never trained. The official network has a bias, which it trains in the
    first three epochs.
    """

    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("weight", torch.randn(2 * VALUES, 3, SIDE, SIDE))

    def read(self, batches: Iterable[Tensor]) -> None:
        """Compute the weights from the first 5,000 normalised training images (N, 3, H, W)."""
        total, count, images = torch.zeros(VALUES, VALUES, dtype=torch.float64), 0, 0
        for batch in batches:
            squares = F.unfold(batch[: IMAGES - images].double().cpu(), SIDE)
            rows = squares.transpose(1, 2).reshape(-1, VALUES)
            total += rows.T @ rows
            count, images = count + len(rows), images + len(batch)
            if images >= IMAGES:
                break
        values, vectors = torch.linalg.eigh(total / count)
        components = (vectors / (values + LEAST_EIGENVALUE).sqrt()).T.reshape(-1, 3, SIDE, SIDE)
        self.weight.copy_(torch.cat([components, -components]))

    def forward(self, x: Tensor) -> Tensor:
        """Map ``(N, 3, H, W)`` to ``(N, 24, H - 1, W - 1)``."""
        return F.conv2d(x, self.weight)


class Norm(nn.BatchNorm2d):
    """Batch normalisation with a trained shift and no scale, and statistics that follow quickly."""

    def __init__(self, channels: int) -> None:
        super().__init__(channels, eps=1e-12, momentum=0.4)
        self.weight.requires_grad_(False)


class Scale(nn.Module):
    """Multiplication by :data:`SCALE`."""

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled input."""
        return x * SCALE


def identity_conv(in_channels: int, out_channels: int) -> nn.Conv2d:
    """3x3 convolution that begins as a copy of its input in its first channels."""
    conv = nn.Conv2d(in_channels, out_channels, 3, padding=1, bias=False)
    nn.init.dirac_(conv.weight.data[:in_channels])
    return conv


def group(in_channels: int, out_channels: int) -> nn.Sequential:
    """Two convolutions, the first with 2x2 max-pooling, each with normalisation and GELU."""
    return nn.Sequential(
        identity_conv(in_channels, out_channels),
        nn.MaxPool2d(2),
        Norm(out_channels),
        nn.GELU(),
        identity_conv(out_channels, out_channels),
        Norm(out_channels),
        nn.GELU(),
    )


class AirBench(Backbone):
    """Whitening, and three groups of two convolutions, of ``widths`` channels; the head has a bias,
    unlike the official one.
    """

    widths: tuple[int, int, int]

    def __init__(self, num_classes: int) -> None:
        channels = itertools.pairwise((2 * VALUES, *self.widths))
        super().__init__(
            [nn.Sequential(Whitening(), nn.GELU()), *(group(*each) for each in channels)],
            nn.Sequential(MapMaximum(), nn.Flatten(), Scale()),
            self.widths[-1],
            num_classes,
        )


@register(
    id="airbench24",
    label="AirBench-24",
    parameters={10: 281_338},
    **FACTS,
)
class AirBench24(AirBench):
    """Widths 24-96-96: three eighths of the official ones."""

    widths = (24, 96, 96)


@register(
    id="airbench32",
    label="AirBench-32",
    parameters={10: 497_226},
    **FACTS,
)
class AirBench32(AirBench):
    """Widths 32-128-128: half of the official ones."""

    widths = (32, 128, 128)


@register(
    id="airbench64",
    label="AirBench-64",
    parameters={10: 1_971_338},
    **FACTS,
)
class AirBench64(AirBench):
    """Widths 64-256-256: the official network."""

    widths = (64, 256, 256)
