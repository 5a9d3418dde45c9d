"""MyComponent: say here which equation of which paper this is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from calgrid.calibrators import Calibrator
from calgrid.components.registry import register


@register(
    source="authors, title, year, equation",
    keeps_argmax=False,  # needs=("logits", "features", "head") gives _fit further inputs
    parameters="K",
    limits={"weight": "[0, 1]"},
)
class MyComponent(Calibrator):
    """Probabilities mixed with the shares of the classes in the validation data."""

    weight: float = 0.1

    def _fit(
        self, logits: NDArray[np.float64], labels: NDArray[np.int64], features: Any, head: Any
    ) -> dict[str, Any]:
        """Fit on logits (N, K) and labels (N,), and return entries for ``fit_history``."""
        self.shares = np.bincount(labels, minlength=logits.shape[1]) / len(labels)
        return {}

    def _transform(self, logits: NDArray[np.float64], features: Any) -> NDArray[np.float64]:
        """Return probabilities (N, K)."""
        return (1 - self.weight) * softmax(logits, axis=1) + self.weight * self.shares
