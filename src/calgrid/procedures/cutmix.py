"""CutMix: paste a rectangle of another image, and train on both labels by their areas.

Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable Features,
ICCV 2019 (official code clovaai/CutMix-PyTorch).
"""

import math

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.procedures._mixing import MixedPairs, draw_beta, draw_partners
from calgrid.training.data import Batch


@register(
    source="Yun et al., ICCV 2019; clovaai/CutMix-PyTorch train.py",
    losses="affine",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    limits={"alpha": "(0, inf)", "probability": "[0, 1]"},
)
class CutMix(MixedPairs):
    """CutMix of a batch with a permutation of itself.

    One rectangle per batch, of the sides of the image times ``sqrt(1 - lambda)`` with ``lambda ~
    Beta(alpha, alpha)``, around a random pixel; parts outside of the image are cut off. The
    rectangle comes from a random partner j of each sample i, and with ``w`` the share of the area
    outside of it::

        L = w loss(z(x), y_i) + (1 - w) loss(z(x), y_j)

    As in the official code; for losses that are affine in the label, see ``mixup``. The paper mixes
    each batch (in the official code: on ImageNet; on CIFAR half of them).

    Parameters
    ----------
    alpha : parameter of the Beta distribution, above 0.
    probability : share of the batches that are mixed, in [0, 1]; 0.5 on CIFAR and 1 on ImageNet in
        the official commands.
    """

    alpha: float = 1.0
    probability: float = 0.5

    def mixture(self, batch: Batch) -> tuple[Tensor, float, Tensor] | None:
        """Return images with a rectangle of their partners."""
        if torch.rand(()) >= self.probability:
            return None
        weight = float(draw_beta(self.alpha, 1))
        partners = draw_partners(batch)
        height, width = batch.images.shape[-2:]
        rows, columns = (_section(side, math.sqrt(1 - weight)) for side in (height, width))
        images = batch.images.clone()
        images[:, :, rows, columns] = batch.images[:, :, rows, columns][partners]
        area = (rows.stop - rows.start) * (columns.stop - columns.start)
        return images, 1 - area / (height * width), partners


def _section(side: int, share: float) -> slice:
    """Section of a side around a random pixel, clipped to the image; ``share`` is its part of the
    side.
    """
    half = int(side * share) // 2
    middle = int(torch.randint(side, ()))
    return slice(max(middle - half, 0), min(middle + half, side))
