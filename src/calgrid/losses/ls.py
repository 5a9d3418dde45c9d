"""Label smoothing (Szegedy et al., CVPR 2016; studied by Müller et al., NeurIPS 2019)."""

from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, cross_entropy, uniform_cross_entropy


@register(
    source="Müller et al., When Does Label Smoothing Help?, NeurIPS 2019; alpha as in the FeDLaS "
    "paper",
    dataset_defaults={"cifar100": {"alpha": 0.1}},
    hard_labels=False,
    limits={"alpha": "[0, 1]"},
)
class LabelSmoothing(Loss):
    """Label smoothing ``mean((1 - alpha) CE + alpha U)``, U the cross-entropy against the uniform
    distribution.

    The mass on the true class is ``1 - alpha + alpha / C``: the same as ``label_smoothing`` of
    ``torch.nn.functional.cross_entropy``. (Code that spreads alpha over the other C - 1 classes
    smooths more.)

    Parameters
    ----------
    alpha : smoothing, in [0, 1].
    """

    alpha: float = 0.05

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the smoothed cross-entropy of logits (N, C) and labels (N,); parts ``ce`` and
        ``uniform``.
        """
        log_probs = logits.log_softmax(dim=1)
        ce = cross_entropy(log_probs, labels).mean()
        uniform = uniform_cross_entropy(log_probs).mean()
        return (1 - self.alpha) * ce + self.alpha * uniform, {"ce": ce, "uniform": uniform}
