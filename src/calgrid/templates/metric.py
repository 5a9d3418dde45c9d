"""my_component: say here which paper measures this."""

import numpy as np
from numpy.typing import NDArray

from calgrid.components.registry import register

CONFIDENT = 0.9


@register(
    source="authors, title, year, equation",
    lower_is_better=True,
    unit="fraction",
    interval="percentile",
)
def compute(probs: NDArray[np.float64], labels: NDArray[np.int64], n_bins: int) -> float:
    """Share of images that are classified wrongly with a confidence of 0.9 or more.

    Parameters
    ----------
    probs : probabilities (N, K).
    labels : (N,).
    n_bins : bins of the calibration errors of the study.
    """
    is_wrong = probs.argmax(axis=1) != labels
    return float(np.mean(is_wrong & (probs.max(axis=1) >= CONFIDENT)))
