"""From logits to probabilities and back, and the map that moves only the top label's probability."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

Array = NDArray[np.float64]
#: largest distance of a row sum from 1 that low-precision probabilities may have
ROW_SUM_TOLERANCE = 1e-2
#: below this the others' probabilities carry no information on how to share what the top label gives up
NOTHING_LEFT = 1e-12


def softmax(logits: Array) -> Array:
    """Return probabilities ``(N, K)`` of logits ``(N, K)`` whose row maximum is 0; -inf gives 0."""
    exponentials = np.exp(logits)
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def top_label(logits: Array) -> tuple[NDArray[np.intp], Array]:
    """Return predicted class ``(N,)`` (the first among ties) and its probability ``(N,)``; row maximum is 0."""
    return logits.argmax(axis=1), 1.0 / np.exp(logits).sum(axis=1)


def top_label_map(logits: Array, target: Array) -> Array:
    """Give the predicted class the probability ``target`` and share the rest as the softmax does.

    The other classes are multiplied by ``(1 - q) / (1 - p)``; where ``1 - p`` is below 1e-12 they share ``1 - q``
    evenly. The row is never renormalised: that would undo the map.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0.
    target : ``(N,)`` q in [0, 1].

    Returns
    -------
    Probabilities ``(N, K)``. The predicted class may change where q is small.
    """
    rows, predicted = np.arange(len(logits)), logits.argmax(axis=1)
    others = np.exp(logits)
    # summed without the top term: 1 - p would lose its digits for confident samples
    others[rows, predicted] = 0.0
    rest = others.sum(axis=1)
    saturated = rest < NOTHING_LEFT
    others[saturated] = 1.0
    others[saturated, predicted[saturated]] = 0.0
    others *= ((1.0 - target) / np.where(saturated, logits.shape[1] - 1, rest))[:, None]
    others[rows, predicted] = target
    return others


def logits_from_probabilities(probabilities: Any) -> Array:
    """Return logits ``(N, K)``, float64, whose softmax is ``probabilities``; for callers who know they have those.

    Nothing in this package guesses from the values whether numbers are logits or probabilities.

    Parameters
    ----------
    probabilities : ``(N, K)``, each row summing to 1 within 0.01; zeros become ln of the smallest normal float32.

    Raises
    ------
    DataError : not ``(N, K)``, values outside [0, 1], or rows that do not sum to 1.
    """
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 2:
        raise DataError(f"probabilities must be (N, K), got shape {array.shape}.")
    if not ((array >= 0.0) & (array <= 1.0 + ROW_SUM_TOLERANCE)).all():
        raise DataError("probabilities must lie in [0, 1]: if these are logits, use them as they are.")
    if (np.abs(array.sum(axis=1) - 1.0) > ROW_SUM_TOLERANCE).any():
        raise DataError("rows of probabilities must sum to 1: if these are logits, use them as they are.")
    return np.log(np.maximum(array, float(np.finfo(np.float32).tiny)))
