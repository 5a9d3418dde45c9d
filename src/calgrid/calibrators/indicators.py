"""Inputs of temperature networks: functions of a sample's logits that are invariant to a constant
added to them.
"""

from collections.abc import Callable, Mapping

import numpy as np

from calgrid.calibrators._confidence import margin_and_excess
from calgrid.calibrators._probabilities import Array, centred, softmax, top_label
from calgrid.metrics.moments import row_sums


def entropy(logits: Array) -> Array:
    """Return the entropy of the softmax in nats ``(1, N)``."""
    probabilities = softmax(logits)
    terms = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0.0)
    return -row_sums(probabilities * terms)[None, :]


#: logits ``(N, K)`` with row maximum 0 -> inputs ``(D, N)``; undefined values, such as the margin
#: if only one class is possible, are infinite; the mean is that of the finite logits
INDICATORS: Mapping[str, Callable[[Array], Array]] = {
    "margin": lambda logits: margin_and_excess(logits)[0][None, :],
    "entropy": entropy,
    "confidence": lambda logits: top_label(logits)[1][None, :],
    "max_minus_mean": lambda logits: centred(logits).max(axis=1)[None, :],
    "all_logits": lambda logits: np.ascontiguousarray(centred(logits).T),
}
