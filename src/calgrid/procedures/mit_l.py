"""MIT-L: mixup inference in training, decoupled in the last layer.

A pair is mixed twice, both mixtures are run, and the outputs are solved for those of the pair: Wang
et al., On the Pitfall of Mixup for Uncertainty Calibration, CVPR 2023 (official code
dengbaowang/Mixup-Inference-in-Training, ``main.py``).
"""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.errors import ConfigError
from calgrid.losses.base import Loss
from calgrid.procedures._mixing import draw_beta, draw_partners, mix, weighted_loss
from calgrid.training.data import Batch
from calgrid.training.procedure import Procedure

#: pairs of weights per draw, and maximum number of draws to reach the margin
DRAWS, ATTEMPTS = 64, 1000

Pair = tuple[Tensor, Tensor]


def decouple(mixed: Pair, weights: tuple[float, float]) -> Pair:
    """Solve ``o_i = l_i a + (1 - l_i) b``, i = 1, 2, for a and b.

    ``a = ((1 - l2) o1 - (1 - l1) o2) / (l1 - l2)`` and ``b = (l1 o2 - l2 o1) / (l1 - l2)``.
    """
    (o1, o2), (l1, l2) = mixed, weights
    gap = l1 - l2
    return (1 - l2) / gap * o1 - (1 - l1) / gap * o2, l1 / gap * o2 - l2 / gap * o1


@register(
    source="Wang et al., CVPR 2023, MIT-L; dengbaowang/Mixup-Inference-in-Training main.py",
    losses="stateless",
    passes=2,
    averaged_weights=True,
    limits={"alpha": "(0, inf)", "margin": "[0, 1)"},
)
class MixupInferenceLast(Procedure):
    """Two forward passes through the whole network; only the logits are decoupled.

    The decoupled outputs of two mixtures of each pair are trained with the pair's own labels. ``l1
    = max(u, 1 - u)`` and ``l2 = min(v, 1 - v)``, u and v from ``Beta(alpha, alpha)``, redrawn while
    ``l1 - l2 < margin``, because the noise of the decoupled outputs grows as ``1 / (l1 - l2)``.
    With a partner j of each sample i, ``L = 1/2 loss(o_i, y_i) + 1/2 loss(o_j, y_j)``. As in the
    official code, the mixtures are separate forward passes with separate BatchNorm statistics.

    Defaults: alpha 1 as in the documented runs of MIT-L, with the official margin 0.5 (those runs
    have margin 0, with unbounded noise of single batches).

    Parameters
    ----------
    alpha : parameter of the Beta distribution, above 0.
    margin : minimum difference of the two weights, in [0, 1).
    """

    alpha: float = 1.0
    margin: float = 0.5

    def units(self, model: Backbone) -> Iterable[nn.Module]:
        """Parts of the network, from input to logits; the pair is decoupled after each."""
        return (model,)

    def forward_loss(self, model: Backbone, loss: Loss, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the decoupled logits (B, K) of the batch's images and the mean of both losses."""
        partners = draw_partners(batch)
        logits, partner_logits = self.decoupled_logits(
            model, (batch.images, batch.images[partners])
        )
        terms = [(0.5, logits, batch.labels), (0.5, partner_logits, batch.labels[partners])]
        return logits, weighted_loss(loss, terms, index=batch.index)

    def decoupled_logits(self, model: Backbone, pair: Pair) -> Pair:
        """Return the decoupled logits, each (B, K), of a pair of images, each (B, C, H, W)."""
        for unit in self.units(model):
            weights = self.draw_weights()
            first, second = (unit(mix(*pair, weight)) for weight in weights)
            pair = decouple((first, second), weights)
        return pair

    def draw_weights(self) -> tuple[float, float]:
        """Weights l1 > l2 of the first image in both mixtures.

        Raises
        ------
        ConfigError : the weights that alpha gives hardly ever differ by the margin.
        """
        for _ in range(ATTEMPTS):
            draws = draw_beta(self.alpha, 2 * DRAWS).view(2, DRAWS)
            high = torch.maximum(draws, 1.0 - draws)
            l1, l2 = high[0], 1.0 - high[1]
            fits = ((l1 - l2 >= self.margin) & (l1 > l2)).nonzero()
            if len(fits):
                return float(l1[fits[0]]), float(l2[fits[0]])
        id = type(self).__module__.rpartition(".")[2]
        raise ConfigError(
            f"procedure '{id}': weights of Beta({self.alpha:g}, {self.alpha:g}) hardly ever "
            f"differ by a margin of {self.margin:g}; lower margin or alpha."
        )
