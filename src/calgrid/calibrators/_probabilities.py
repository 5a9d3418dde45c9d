"""Functions of logits: their scale, conversion to probabilities, maps of the top label, or of each
class separately.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.metrics.moments import row_blocks, row_sums

Array = NDArray[np.float64]
#: tolerance of row sums of low-precision probabilities; and of row sums and signs that numbers must
#: have to be taken for probabilities
ROW_SUM_TOLERANCE = 1e-2
PROBABILITY_TOLERANCE = 1e-3
#: relative distance of sums of rows from 1 or 100 below which values may be rounded probabilities,
#: if there are this many rows: logits of a few images sum to it by chance
ROUNDED_SUM_TOLERANCE = 0.1
FEWEST_ROUNDED = 10
#: below this the probabilities of the other classes do not determine how the rest is shared
NOTHING_LEFT = 1e-12
#: ln of the smallest normal float32, which stands for ln 0
LOG_TINY = float(np.log(np.finfo(np.float32).tiny))
#: median standard deviation of a row in units: about that of the published CIFAR-10 ResNet-50
#: trained with cross-entropy (4.8), so that temperatures, learning rates and bounds of the papers
#: apply
TYPICAL_SPREAD = 5.0


def by_blocks(convert: Callable[[Array], Array], rows: Array) -> Array:
    """Return ``convert(rows)``, block by block, so that arrays in between stay in the cache.

    Parameters
    ----------
    convert : maps rows ``(n, K)`` to rows ``(n, K)``, each separately.
    rows : ``(N, K)``.
    """
    result = np.empty(rows.shape)
    for block in row_blocks(*rows.shape):
        result[block] = convert(rows[block])
    return result


def possible_labels(logits: Array, labels: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return the mask ``(N,)`` of samples whose label has a finite logit; others have an infinite
    loss.

    Raises
    ------
    DataError : no sample has one.
    """
    possible = logits[np.arange(len(labels)), labels] > -np.inf
    if not possible.any():
        raise DataError("every label's logit is -inf; the labels do not belong to these logits.")
    return possible


def centred(logits: Array) -> Array:
    """Return logits ``(N, K)`` minus the mean of each row's finite values; -inf stays.

    This makes maps with different parameters per class invariant to a constant added to a row.
    """
    finite = logits > -np.inf
    mean = logits.sum(axis=1, keepdims=True, where=finite) / finite.sum(axis=1, keepdims=True)
    return logits - mean


def logit_scale(logits: Array) -> float:
    """Return a fifth of the median standard deviation of a row; 1.0 if the finite logits of each
    row are equal.

    Proportional to the logits, and invariant to constants added to rows and to classes of -inf. A
    finite logit is never taken for a mask: those of three classes, two of them nearly equal, look
    the same.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0; -inf allowed.
    """
    spreads = np.concatenate([_spreads(-logits[block]) for block in row_blocks(*logits.shape)])
    spreads = spreads[(spreads > 0.0) & np.isfinite(spreads)]
    return float(np.median(spreads)) / TYPICAL_SPREAD if len(spreads) else 1.0


def _spreads(gaps: Array) -> Array:
    """Return the standard deviation ``(N,)`` of each row's finite gaps to its largest logit."""
    if gaps.max() < np.inf:
        return gaps.std(axis=1)
    return np.nanstd(np.where(gaps < np.inf, gaps, np.nan), axis=1)


def rescaled(logits: Array, scale: float) -> Array:
    """Return logits divided by their scale; overflow becomes impossible (-inf)."""
    if scale == 1.0:
        return logits
    with np.errstate(over="ignore"):
        return logits / scale


def softmax(logits: Array) -> Array:
    """Return probabilities ``(N, K)`` of logits ``(N, K)`` whose row maximum is 0; -inf gives 0."""
    exponentials = np.exp(logits)
    exponentials /= row_sums(exponentials)[:, None]
    return exponentials


def log_probabilities(logits: Array) -> tuple[Array, Array]:
    """Return ln p and ln (1 - p), ``(N, K)`` each, of the softmax of logits ``(N, K)`` whose row
    maximum is 0.

    Both are at least ln of the smallest normal float32.
    """
    scores, rests = np.empty(logits.shape), np.empty(logits.shape)
    for block in row_blocks(*logits.shape):  # arrays in between stay in the cache
        exponentials, top = np.exp(logits[block]), logits[block].argmax(axis=1)
        rows = np.arange(len(top))
        total = row_sums(exponentials)[:, None]
        rest = total - exponentials
        # summed without the top term, because the difference would lose precision for confident
        # samples
        exponentials[rows, top] = 0.0
        rest[rows, top] = row_sums(exponentials)
        with np.errstate(divide="ignore"):
            log_rest = np.log(rest) - np.log(total)
        np.maximum(logits[block] - np.log(total), LOG_TINY, out=scores[block])
        np.maximum(log_rest, LOG_TINY, out=rests[block])
    return scores, rests


def top_label(logits: Array) -> tuple[NDArray[np.intp], Array]:
    """Return predicted class ``(N,)`` (the first among ties) and its probability ``(N,)``; row
    maximum is 0.
    """
    return logits.argmax(axis=1), 1.0 / row_sums(np.exp(logits))


def never_certain(values: Array, n_samples: int) -> Array:
    """Keep probabilities estimated from N samples in ``[1 / (N + 1), N / (N + 1)]``, for a finite
    NLL.
    """
    floor = 1.0 / (n_samples + 1)
    return np.clip(values, floor, 1.0 - floor)


def top_label_map(logits: Array, target: Array) -> Array:
    """Set the probability of the predicted class to ``target``; the others share the rest in
    proportion to the softmax.

    The other classes are multiplied by ``(1 - q) / (1 - p)``; where ``1 - p`` is below 1e-12 they
    share ``1 - q`` evenly. Rows are not renormalised, which would change ``target``. Returns
    probabilities ``(N, K)``. The predicted class may change where q is small.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0.
    target : ``(N,)`` q in [0, 1].
    """
    rows, predicted = np.arange(len(logits)), logits.argmax(axis=1)
    others = np.exp(logits)
    # summed without the top term, because 1 - p would lose precision for confident samples
    others[rows, predicted] = 0.0
    rest = row_sums(others)
    saturated = rest < NOTHING_LEFT
    others[saturated] = 1.0
    others[saturated, predicted[saturated]] = 0.0
    others *= ((1.0 - target) / np.where(saturated, logits.shape[1] - 1, rest))[:, None]
    others[rows, predicted] = target
    return others


def logits_from_probabilities(probabilities: Any) -> Array:
    """Return logits ``(N, K)``, float64, whose softmax is ``probabilities``; for callers that have
    probabilities.

    The package never infers from values whether they are logits or probabilities.

    Parameters
    ----------
    probabilities : ``(N, K)``, each row summing to 1 within 0.01; zeros become ln of the smallest
        normal float32.

    Raises
    ------
    DataError : not ``(N, K)``, values outside [0, 1], or rows that do not sum to 1.
    """
    array = np.asarray(probabilities, dtype=np.float64)
    if array.ndim != 2:
        raise DataError(f"probabilities must be (N, K), got shape {array.shape}.")
    if not ((array >= 0.0) & (array <= 1.0 + ROW_SUM_TOLERANCE)).all():
        raise DataError(
            "probabilities must lie in [0, 1]; if these are logits, use them as they are."
        )
    if (np.abs(array.sum(axis=1) - 1.0) > ROW_SUM_TOLERANCE).any():
        raise DataError(
            "rows of probabilities must sum to 1; if these are logits, use them as they are."
        )
    return np.log(np.maximum(array, float(np.finfo(np.float32).tiny)))


def are_probabilities(values: NDArray[Any]) -> bool:
    """Whether every row of ``(N, K)`` is non-negative with a sum of 1."""
    if values.dtype.kind not in "fiu" or not values.min() >= 0:
        return False
    off = np.abs(values.sum(axis=1, dtype=np.float64) - 1)
    return bool(off.max() <= PROBABILITY_TOLERANCE)


def resemble_probabilities(values: NDArray[Any]) -> bool:
    """Whether ``(N, K)`` looks like probabilities, also rounded ones, or like percentages: no value
    is negative beyond rounding, and rows sum to 1, or many of them to about 1 or 100.
    """
    if values.dtype.kind not in "fiu" or not values.min() >= -PROBABILITY_TOLERANCE:
        return False
    if are_probabilities(np.maximum(values, 0)):
        return True
    if len(values) < FEWEST_ROUNDED:
        return False
    sums = values.sum(axis=1, dtype=np.float64)
    return any(
        abs(np.median(sums) / whole - 1) <= ROUNDED_SUM_TOLERANCE
        and sums.max() <= whole * (1 + ROUNDED_SUM_TOLERANCE)
        for whole in (1, 100)
    )


def within_unit(values: NDArray[Any]) -> bool:
    """Whether all values lie between 0 and 1 beyond rounding."""
    if values.dtype.kind not in "fiu" or not values.size:
        return False
    least, most = -PROBABILITY_TOLERANCE, 1 + PROBABILITY_TOLERANCE
    return bool(values.min() >= least and values.max() <= most)


def renormalised(values: Array, otherwise: Array) -> Array:
    """Divide rows of values ``(N, K)`` by their sums; rows of zeros become those of ``otherwise``
    ``(N, K)``.
    """
    total = row_sums(values)[:, None]
    empty = total[:, 0] <= 0.0
    result = values / np.where(total > 0.0, total, 1.0)
    result[empty] = otherwise[empty]
    return result


def without_impossible(logits: Array, probabilities: Array) -> Array:
    """Set the probabilities ``(N, K)`` of classes whose logit is -inf to 0, and divide their rows
    by their sums; a row without any other probability stays.
    """
    if logits.min() > -np.inf:
        return probabilities
    wrong = (logits == -np.inf) & (probabilities > 0.0)
    rows = np.flatnonzero(wrong.any(axis=1))
    if not len(rows):
        return probabilities
    kept = np.where(wrong[rows], 0.0, probabilities[rows])
    result = probabilities.copy()
    result[rows] = renormalised(kept, probabilities[rows])
    return result


def map_classes(
    logits: Array, classes: NDArray[np.int64], calibrate: Callable[[int, Array], Array]
) -> Array:
    """Calibrate the softmax of each class separately, and renormalise.

    Parameters
    ----------
    logits : ``(N, K)`` with row maximum 0.
    classes : ``(C,)``, classes with a map; the others keep their probability.
    calibrate : maps a position in ``classes`` and probabilities ``(N,)`` to calibrated ones
        ``(N,)``.
    """
    probabilities = softmax(logits)
    mapped = probabilities.copy()
    for position, label in enumerate(classes):
        mapped[:, label] = calibrate(position, np.ascontiguousarray(probabilities[:, label]))
    return renormalised(mapped, probabilities)
