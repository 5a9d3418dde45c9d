"""Inputs of temperature networks: seven functions of the logits of a sample.

Each takes logits ``(N, K)`` with row maximum 0 and returns ``(D, N)``; undefined values, such as the margin if only one
class is possible, are infinite.
"""

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._confidence import margin_and_excess
from calgrid.calibrators._probabilities import centred, softmax, top_label

Array = NDArray[np.float64]


def margin(logits: Array) -> Array:
    """Return the largest minus the second largest logit ``(1, N)``."""
    return margin_and_excess(logits)[0][None, :]


def entropy(logits: Array) -> Array:
    """Return the entropy of the softmax in nats ``(1, N)``."""
    probabilities = softmax(logits)
    terms = np.log(probabilities, out=np.zeros_like(probabilities), where=probabilities > 0.0)
    return -np.einsum("nk,nk->n", probabilities, terms)[None, :]


def confidence(logits: Array) -> Array:
    """Return the largest probability of the softmax ``(1, N)``."""
    return top_label(logits)[1][None, :]


def max_minus_mean(logits: Array) -> Array:
    """Return the largest logit minus the mean of the finite ones ``(1, N)``."""
    return centred(logits).max(axis=1)[None, :]


def all_logits(logits: Array) -> Array:
    """Return all logits ``(K, N)``, minus the mean of the finite ones of the row."""
    return np.ascontiguousarray(centred(logits).T)


def top_logits(logits: Array, count: int) -> Array:
    """Return the ``count`` largest of :func:`all_logits` ``(count, N)``, largest first."""
    n_classes = logits.shape[1]
    largest = np.partition(centred(logits), n_classes - count, axis=1)[:, n_classes - count :]
    return np.ascontiguousarray(np.sort(largest, axis=1)[:, ::-1].T)


#: indicators that are invariant to a constant added to a row
INDICATORS: Mapping[str, Callable[[Array], Array]] = {
    "margin": margin,
    "entropy": entropy,
    "confidence": confidence,
    "max_minus_mean": max_minus_mean,
    "all_logits": all_logits,
}
