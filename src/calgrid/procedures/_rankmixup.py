"""RankMixup: the confidences of mixtures are ranked below their images' (Noh et al., ICCV 2023)."""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import draw_beta, draw_partners, mix
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure


class RankMixup(Procedure):
    """Loss of the batch plus a ranking loss of its logits against the logits of mixtures.

    ``loss(z(x_i), y_i) + lambda R``, where R is the :meth:`ranking` of the form. As in the official
    code, the mixtures of a step are one forward pass, with batch statistics apart from those of the
    plain images. The history has R as ``ranking``.

    Parameters
    ----------
    alpha : parameter of the Beta distribution of the weights of mixtures, above 0.
    lambda_ : weight of the ranking, at least 0.
    """

    #: mixtures of a step, each with a weight and partners of its own
    mixtures: ClassVar[int]

    alpha: float = 2.0
    lambda_: float = 0.1

    @abstractmethod
    def ranking(self, logits: Tensor, mixed: Tensor, weights: Tensor) -> Tensor:
        """Return the mean ranking loss of a batch, a scalar.

        Parameters
        ----------
        logits : (B, K) float32 of the plain images. mixed : (M, B, K) of their mixtures.
        weights : (M, B), the larger of the weights of the two labels; 1 where they are equal.
        """

    def draw(self, batch: Batch) -> Batch:
        """Return the batch with the ``mixed`` images (M B, C, H, W) and the larger of the
        ``weights`` (M, B) of both labels.
        """
        images, weights = [], []
        for weight in draw_beta(self.alpha, self.mixtures).tolist():
            partners = draw_partners(batch)
            images.append(mix(batch.images, batch.images[partners], weight))
            equal = batch.labels == batch.labels[partners]
            weights.append(torch.where(equal, 1.0, max(weight, 1.0 - weight)))
        return replace(batch, drawn={"mixed": torch.cat(images), "weights": torch.stack(weights)})

    def forward_loss(self, model: Backbone, loss: Loss, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return logits (B, K) of the plain images and the loss with the ranking."""
        logits, total = super().forward_loss(model, loss, batch)
        mixed = model.head(model.features(batch.drawn["mixed"])).float()
        mixed = mixed.unflatten(0, (self.mixtures, len(batch)))
        ranking = self.ranking(logits.float(), mixed, batch.drawn["weights"])
        self.last_terms = {"ranking": ranking.detach()}
        count = len(batch) if loss.reduction == "sum" else 1
        return logits, total + count * self.lambda_ * ranking
