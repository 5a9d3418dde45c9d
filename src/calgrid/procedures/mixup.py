"""Mixup: train on convex combinations of pairs of images and of their losses.

Zhang et al., mixup: Beyond Empirical Risk Minimization, ICLR 2018 (official code
facebookresearch/mixup-cifar10); as a calibration method Thulasidasan et al., On Mixup Training,
NeurIPS 2019.
"""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.procedures._mixing import MixedPairs, draw_beta, draw_partners, mix
from calgrid.training.data import Batch


@register(
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
        # draw nothing, so that other random numbers are as in plain training
        if self.alpha == 0:
            return None
        weight = float(draw_beta(self.alpha, 1))
        partners = draw_partners(batch)
        return mix(batch.images, batch.images[partners], weight), weight, partners
