"""MIT-L: mixup inference in training, decoupled in the last layer (see ``_mit``)."""

from calgrid.backbones.base import Backbone
from calgrid.procedures._mit import MixupInference, Pair
from calgrid.registry import register


@register(
    source="Wang et al., CVPR 2023, MIT-L; dengbaowang/Mixup-Inference-in-Training main.py",
    losses="stateless",
    limits={"alpha": "(0, inf)", "margin": "[0, 1)"},
)
class MixupInferenceLast(MixupInference):
    """Two forward passes through the whole network; only the logits are decoupled.

    Defaults: alpha 1 as in the documented runs of MIT-L, with the official margin 0.5 (those runs have margin 0, with
    unbounded noise of single batches).

    Parameters
    ----------
    alpha : parameter of the Beta distribution, above 0.
    margin : minimum difference of the two weights, in [0, 1).
    """

    def __init__(self, *, alpha: float = 1.0, margin: float = 0.5) -> None:
        super().__init__(alpha, margin)

    def decoupled_logits(self, model: Backbone, pair: Pair) -> Pair:
        """Decoupled logits, each (B, K), of a pair of images."""
        return self.through(model, pair)
