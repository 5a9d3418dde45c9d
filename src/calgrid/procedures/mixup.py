"""Mixtures of pairs of images and of their losses: mixup, RegMixup and CutMix.

Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018 (official code
facebookresearch/mixup-cifar10); as a calibration method Thulasidasan et al., On Mixup Training,
NeurIPS 2019. As a regulariser beside the plain loss Pinto et al., NeurIPS 2022, arXiv 2206.14502.
Rectangles: Yun et al., CutMix: Regularization Strategy to Train Strong Classifiers with Localizable
Features, ICCV 2019 (official code clovaai/CutMix-PyTorch).
"""

import math
from dataclasses import replace

import torch
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import (
    MixedPairs,
    draw_beta,
    draw_partners,
    mix,
    weighted_loss,
    weights_of_both,
)
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure


@register(
    id="mixup",
    source="Zhang et al., ICLR 2018; Thulasidasan et al., NeurIPS 2019",
    losses="affine",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    limits={"alpha": "[0, inf)"},
)
class Mixup(MixedPairs):
    """Mixup of a batch with a permutation of itself.

    One weight per batch, ``lambda ~ Beta(alpha, alpha)``, and a random partner j of each sample i::

        x = lambda x_i + (1 - lambda) x_j
        L = lambda loss(z(x), y_i) + (1 - lambda) loss(z(x), y_j)

    The sum of two losses follows the official code. The paper mixes one-hot labels, which is
    equivalent for losses that are affine in the label; other losses are refused. Training accuracy
    is weighted alike. The official default of alpha is 1; Thulasidasan et al. find the best
    calibration for small values, and underconfidence for large ones.

    Parameters
    ----------
    alpha : parameter of the Beta distribution, at least 0; 0 is lambda = 1, plain training.
    """

    alpha: float = 0.2

    def mixture(self, batch: Batch) -> tuple[Tensor, float, Tensor] | None:
        """Return mixtures of whole images."""
        # draw nothing, so that other random numbers equal those of plain training
        if self.alpha == 0:
            return None
        weight = float(draw_beta(self.alpha, 1))
        partners = draw_partners(batch)
        return mix(batch.images, batch.images[partners], weight), weight, partners


@register(
    id="regmixup",
    source="Pinto et al., NeurIPS 2022, arXiv 2206.14502; FrancescoPinto/RegMixup "
    "models/regmixup.py, commands.sh",
    losses="affine",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    passes=2,
    dataset_defaults={"cifar100": {"alpha": 10.0}},
    limits={"alpha": "(0, inf)"},
)
class RegMixup(Procedure):
    """Mixup as a regulariser beside the loss of the plain batch.

    One weight per batch, ``lambda ~ Beta(alpha, alpha)``, mostly near 1/2, and a random partner j
    of each sample i, as in ``mixup``::

        x = lambda x_i + (1 - lambda) x_j
        L = 1/2 loss(z(x_i), y_i) + 1/2 (lambda loss(z(x), y_i) + (1 - lambda) loss(z(x), y_j))

    The paper has the sum of both losses; the official code takes the mean over the 2 B images, half
    of it, and sends them through the network together, so that batch normalisation has the
    statistics of both. Training accuracy is that of the plain images. alpha is 20, for CIFAR-100
    10, as in the official commands and in OpenOOD.

    Parameters
    ----------
    alpha : parameter of the Beta distribution, above 0.
    """

    alpha: float = 20.0

    def draw(self, batch: Batch) -> Batch:
        """Return plain and mixed images (2 B, C, H, W), with the ``weights`` (2,) of both labels
        and the ``other_labels`` (B,) of the mixed ones.
        """
        weight = float(draw_beta(self.alpha, 1))
        partners = draw_partners(batch)
        mixed = mix(batch.images, batch.images[partners], weight)
        drawn = {
            "weights": weights_of_both(weight, batch),
            "other_labels": batch.labels[partners],
        }
        return replace(batch, images=torch.cat([batch.images, mixed]), drawn=drawn)

    def forward_loss(
        self, model: Backbone, loss: Loss, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) of the plain images and the loss of plain and mixed ones."""
        features = model.features(batch.images)
        logits = model.head(features)
        own, other = batch.drawn["weights"]
        terms = [
            (own, logits, batch.labels.repeat(2)),
            (other, logits, torch.cat([batch.labels, batch.drawn["other_labels"]])),
        ]
        total = weighted_loss(loss, terms, features, batch.index.repeat(2))
        # a sum is B times the mean over the 2 B images
        return logits[: len(batch)], total / 2 if loss.reduction == "sum" else total


@register(
    id="cutmix",
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
    Beta(alpha, alpha)``, around a random pixel; what is outside of the image is cut off. It is
    taken from a random partner j of each sample i, and with ``w`` the share of the area outside of
    it::

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
    """Part of a side, of a share of it around a random pixel, within the image."""
    half = int(side * share) // 2
    middle = int(torch.randint(side, ()))
    return slice(max(middle - half, 0), min(middle + half, side))
