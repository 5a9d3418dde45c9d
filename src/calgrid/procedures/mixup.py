"""Mixup: train on convex combinations of pairs of images and of their losses.

Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018 (official code
facebookresearch/mixup-cifar10); as a calibration method Thulasidasan et al., On Mixup Training,
NeurIPS 2019.
"""

import torch

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.procedures._mixing import draw_beta, draw_partners, mix, weighted_loss
from calgrid.training.data import Batch
from calgrid.training.procedure import LossFunction, Procedure


@register(
    source="Zhang et al., ICLR 2018; Thulasidasan et al., NeurIPS 2019",
    losses="affine",
    several_gpus=True,
    cuda_graph=True,
    limits={"alpha": "[0, inf)"},
)
class Mixup(Procedure):
    """Mixup of a batch with a permutation of itself.

    One weight per batch, ``lambda ~ Beta(alpha, alpha)``, and a random partner j of each sample i::

        x = lambda x_i + (1 - lambda) x_j
        L = lambda loss(z(x), y_i) + (1 - lambda) loss(z(x), y_j)

    The sum of two losses follows the official code. The paper mixes one-hot labels, which is
    equivalent for losses that are affine in the label; other losses are refused. Training accuracy
    is weighted alike. The official default of alpha is 1; Thulasidasan et al. find the best
    calibration for small values, and under-confidence for large ones.

    Parameters
    ----------
    alpha : parameter of the Beta distribution, at least 0; 0 is lambda = 1, plain training.
    """

    def __init__(self, *, alpha: float = 0.2) -> None:
        super().__init__()
        self.alpha = alpha
        self._weight = 1.0
        self._other_labels = torch.empty(0, dtype=torch.int64)

    def forward_loss(
        self, model: Backbone, loss: LossFunction, batch: Batch
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits (B, K) of the mixed images and the two-term loss."""
        # draw nothing, so that other random numbers equal those of plain training
        if self.alpha == 0:
            return super().forward_loss(model, loss, batch)
        self._weight = float(draw_beta(self.alpha, 1))
        partners = draw_partners(batch)
        self._other_labels = batch.labels[partners]
        features = model.features(mix(batch.images, batch.images[partners], self._weight))
        logits = model.head(features)
        terms = [
            (self._weight, logits, batch.labels),
            (1.0 - self._weight, logits, self._other_labels),
        ]
        return logits, weighted_loss(loss, terms, features, batch.index)

    def correct(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """Total weight (B,) of the labels that equal the arg max."""
        correct = super().correct(logits, batch)
        if self.alpha == 0:
            return correct
        correct_for_partner = logits.argmax(dim=1).eq(self._other_labels)
        return mix(correct.float(), correct_for_partner.float(), self._weight)
