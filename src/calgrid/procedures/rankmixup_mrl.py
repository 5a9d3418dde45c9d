"""RankMixup with the mixup-based ranking loss (Noh et al., ICCV 2023)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.procedures._rankmixup import RankMixup


@register(
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
    """The largest logit of a mixture stays a margin below its image's.

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
        """Return R of logits (B, K), logits of one mixture (1, B, K) and its weights (1, B)."""
        excess = (mixed[0].amax(dim=1) - logits.amax(dim=1) + self.margin).relu()
        counts = (weights[0] < 1.0).float()
        return counts.mean() * excess.mean() if self.replay else (counts * excess).mean()
