"""RankMixup with the normalised discounted cumulative gain of mixtures (Noh et al., ICCV 2023)."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.procedures._rankmixup import RankMixup


@register(
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
        """Return R of logits (B, K), logits of the mixtures (M, B, K) and their weights (M, B)."""
        ordered, order = weights.sort(dim=0, descending=True, stable=True)
        confidence = logits.softmax(dim=1).amax(dim=1, keepdim=True).t()
        mixed_confidence = mixed.softmax(dim=2).amax(dim=2).gather(0, order)
        discounts = torch.arange(2.0, self.mixtures + 3.0, device=logits.device).log2().unsqueeze(1)
        found = (torch.cat([confidence, mixed_confidence]) / discounts).sum(dim=0)
        ideal = (torch.cat([torch.ones_like(confidence), ordered]) / discounts).sum(dim=0)
        return (1.0 - torch.minimum(found / ideal, ideal / found)).mean()
