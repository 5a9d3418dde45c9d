"""RegMixup: cross-entropy on the batch and on mixtures of it (Pinto et al., NeurIPS 2022, arXiv
2206.14502).
"""

from dataclasses import replace

import torch

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import draw_beta, draw_partners, mix, weighted_loss, weights_of_both
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure


@register(
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
    of it, and sends them through the network together, so that batch normalisation sees both.
    Training accuracy is that of the plain images. alpha is 20, for CIFAR-100 10, as in the official
    commands and in OpenOOD.

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
