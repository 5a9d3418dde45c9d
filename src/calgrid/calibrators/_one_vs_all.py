"""Calibrators that treat each class as a yes-or-no question of its own and renormalise the answers."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import softmax

Array = NDArray[np.float64]


def renormalised(values: Array, otherwise: Array) -> Array:
    """Divide rows of values ``(N, K)`` by their sums; a row of zeros becomes that of ``otherwise`` ``(N, K)``."""
    total = values.sum(axis=1, keepdims=True)
    empty = total[:, 0] <= 0.0
    result = values / np.where(total > 0.0, total, 1.0)
    result[empty] = otherwise[empty]
    return result


def map_classes(logits: Array, classes: NDArray[np.int64], calibrate: Callable[[int, Array], Array]) -> Array:
    """Calibrate the softmax class by class and renormalise.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0.
    classes : ``(C,)``, those with a map; the others keep their probability.
    calibrate : position in ``classes`` and probabilities ``(N,)`` to calibrated ones ``(N,)``.
    """
    probabilities = softmax(logits)
    mapped = probabilities.copy()
    for position, label in enumerate(classes):
        mapped[:, label] = calibrate(position, np.ascontiguousarray(probabilities[:, label]))
    return renormalised(mapped, probabilities)
