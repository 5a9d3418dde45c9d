"""MIT-A: mixup inference in training, remixed in all blocks (Wang et al., CVPR 2023)."""

from collections.abc import Iterable

from torch import nn

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.procedures.mit_l import MixupInferenceLast


@register(
    source="Wang et al., CVPR 2023, MIT-A; dengbaowang/Mixup-Inference-in-Training main.py",
    losses="stateless",
    passes=2,
    averaged_weights=True,
    limits={"alpha": "(0, inf)", "margin": "[0, 1)"},
)
class MixupInferenceAll(MixupInferenceLast):
    """The pair is decoupled after each unit and mixed with new weights before the next.

    Otherwise as ``mit_l``. Units of the official code, only for ResNets: stem, residual levels,
    pool with classifier. Ours: the stages of any backbone, pool with head. As in the official code,
    decoupled activations may be negative even after ReLU.

    Parameters
    ----------
    alpha : parameter of the Beta distribution, above 0.
    margin : minimum difference of the two weights, in [0, 1).
    """

    alpha: float = 0.5

    def units(self, model: Backbone) -> Iterable[nn.Module]:
        """Stages of the backbone, and its pool with the head."""
        return (*model.stages, nn.Sequential(model.pool, model.head))
