"""MyComponent: say here which equation of which paper this is."""

from torch import Tensor
from torch.nn.functional import cross_entropy

from calgrid.components.registry import register
from calgrid.losses import Loss, LossTerms


@register(
    source="authors, title, year, equation",
    # calgrid.losses.Loss explains these, also needs, state and sees_validation
    hard_labels=False,
    limits={"weight": "[0, inf)"},
)
class MyComponent(Loss):
    """Cross-entropy plus a penalty on large logits."""

    weight: float = 0.01

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the mean loss of logits (N, K) and labels (N,), and its terms for the history."""
        ce = cross_entropy(logits, labels)
        penalty = logits.square().mean()
        return ce + self.weight * penalty, {"ce": ce, "penalty": penalty}
