"""RankMixup: the confidences of mixtures are ranked below those of their images (Noh et al., ICCV
2023).
"""

from abc import abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import draw_beta, draw_partners, mix
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure


class RankMixup(Procedure):
    """The loss of the batch plus a ranking of its logits and those of mixtures with it.

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


@register(
    id="rankmixup_mrl",
    source="Noh et al., ICCV 2023, MRL; cvlab-yonsei/RankMixup calibrate/losses/rankmixup.py, "
    "configs",
    losses="any",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    passes=2,
    dataset_defaults={"tiny_imagenet": {"alpha": 1.0, "margin": 1.0}},
    limits={"alpha": "(0, inf)", "lambda_": "[0, inf)", "margin": "[0, inf)"},
)
class RankMixupMargin(RankMixup):
    """The largest logit of a mixture stays a margin below that of its image.

    ``R = mean(b relu(max_c s'_c - max_c s_c + margin))`` with one mixture a step, its logits s',
    and b = 0 for a pair of equal labels, else 1. Logits, not confidences, as in the official code.
    There b broadcasts to all pairs of the batch, so that ``R = mean(b) mean(relu(...))``
    (``replay``).

    Parameters
    ----------
    alpha : parameter of the Beta distribution of the weight, above 0.
    lambda_ : weight of R, at least 0.
    margin : in logits, at least 0.
    replay : apply the mean of b to all samples, as the official code does.
    """

    mixtures = 1

    margin: float = 2.0
    replay: bool = False

    def ranking(self, logits: Tensor, mixed: Tensor, weights: Tensor) -> Tensor:
        """Return R of logits (B, K), those of one mixture (1, B, K) and its weights (1, B)."""
        excess = (mixed[0].amax(dim=1) - logits.amax(dim=1) + self.margin).relu()
        counts = (weights[0] < 1.0).float()
        return counts.mean() * excess.mean() if self.replay else (counts * excess).mean()


@register(
    id="rankmixup_mndcg",
    source="Noh et al., ICCV 2023, M-NDCG; cvlab-yonsei/RankMixup calibrate/losses/rankmixup.py, "
    "configs",
    losses="any",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    passes=4,
    dataset_defaults={"tiny_imagenet": {"alpha": 1.0}},
    limits={"alpha": "(0, inf)", "lambda_": "[0, inf)"},
)
class RankMixupGain(RankMixup):
    """Confidences of an image and three mixtures of it follow the order of their label weights.

    Ranks r are 1 for the image, of weight v = 1, and 2 to 4 for its mixtures, by the larger weight
    v of their two labels, descending. With confidences k, ``D = sum_r k_r / log_2(r + 1)`` and ``I
    = sum_r v_r / log_2(r + 1)``, ``R = mean(1 - min(D / I, I / D))``.

    Parameters
    ----------
    alpha : parameter of the Beta distribution of the weights, above 0.
    lambda_ : weight of R, at least 0.
    """

    mixtures = 3

    def ranking(self, logits: Tensor, mixed: Tensor, weights: Tensor) -> Tensor:
        """Return R of logits (B, K), those of the mixtures (M, B, K) and their weights (M, B)."""
        ordered, order = weights.sort(dim=0, descending=True, stable=True)
        confidence = logits.softmax(dim=1).amax(dim=1, keepdim=True).t()
        mixed_confidence = mixed.softmax(dim=2).amax(dim=2).gather(0, order)
        discounts = torch.arange(2.0, self.mixtures + 3.0, device=logits.device).log2().unsqueeze(1)
        found = (torch.cat([confidence, mixed_confidence]) / discounts).sum(dim=0)
        ideal = (torch.cat([torch.ones_like(confidence), ordered]) / discounts).sum(dim=0)
        return (1.0 - torch.minimum(found / ideal, ideal / found)).mean()
