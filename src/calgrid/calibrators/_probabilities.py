"""Arrays of logits and probabilities: their types, and functions that run with NumPy and PyTorch.

The map of a calibrator is written once for both: fits and predictions pass NumPy arrays, its
PyTorch module passes tensors. Functions with the same name in both libraries come from
:func:`namespace`.
"""

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.metrics.moments import row_blocks, row_sums

Array = NDArray[np.float64]
Labels = NDArray[np.int64]
Mask = NDArray[np.bool_]
Places = NDArray[np.intp]
#: weight (K, d) and bias (K,) of the model's last layer
Head = tuple[Array, Array]
#: entries of a ``fit_history`` by name
History = dict[str, Any]
#: tolerance of row sums of low-precision probabilities; and of row sums and signs that numbers must
#: have to be taken for probabilities
ROW_SUM_TOLERANCE = 1e-2
PROBABILITY_TOLERANCE = 1e-3
#: relative distance of sums of rows from 1 or 100 below which values may be rounded probabilities,
#: with this many rows: logits of a few images sum to 1 or 100 by chance
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


def is_tensor(values: Any) -> bool:
    """Whether values are a PyTorch tensor, decided without an import of PyTorch."""
    return type(values).__module__.partition(".")[0] == "torch"


def namespace(values: Any) -> Any:
    """Return the library of the values: ``torch`` for a tensor, else ``numpy``."""
    return sys.modules["torch"] if is_tensor(values) else np


def totals(values: Any) -> Any:
    """Return the sum ``(N, 1)`` of each row of ``(N, K)``, as :func:`row_sums` for arrays."""
    return values.sum(dim=1, keepdim=True) if is_tensor(values) else row_sums(values)[:, None]


def take(values: Any, index: Any) -> Any:
    """Return the entry ``(N,)`` of each row of ``(N, P)`` at an index ``(N,)``."""
    if is_tensor(values):
        return values.gather(1, index[:, None])[:, 0]
    return values[np.arange(len(values)), index]


def columns(values: Any) -> Any:
    """Return values ``(N, D)`` as ``(D, N)``, contiguous: the layout decides how products round."""
    return values.T.contiguous() if is_tensor(values) else np.ascontiguousarray(values.T)


def largest(values: Any, count: int) -> Any:
    """Return the ``count`` largest values ``(count, N)`` of each row of ``(N, K)``, descending."""
    if is_tensor(values):
        return values.topk(count, dim=1).values.T
    return columns(np.sort(np.partition(values, -count, axis=1)[:, -count:], axis=1)[:, ::-1])


def sigmoid(x: Array) -> Array:
    """Return ``1 / (1 + exp(-x))`` without overflow."""
    xp = namespace(x)
    small = xp.exp(-xp.abs(x))
    return xp.where(x >= 0.0, 1.0, small) / (1.0 + small)


def softplus(x: Array) -> Array:
    """Return ``ln(1 + exp(x))`` without overflow; its derivative is :func:`sigmoid`."""
    xp = namespace(x)
    return xp.clip(x, 0.0, None) + xp.log1p(xp.exp(-xp.abs(x)))


def inverse_softplus(y: float) -> float:
    """Return the x with ``softplus(x) = y``, for y > 0."""
    return y + float(np.log(-np.expm1(-y)))


def by_blocks(
    convert: Callable[[Array], Any],
    rows: Array,
    blocks: Sequence[slice] | None = None,
    parts: tuple[int, ...] = (),
) -> Array:
    """Return ``convert(rows)``, block by block, so that arrays in between stay in the cache.

    Parameters
    ----------
    convert : maps rows ``(n, K)`` to rows ``(*parts, n, K)``, each separately.
    rows : ``(N, K)``.
    blocks : by default those of :func:`row_blocks`.
    """
    if is_tensor(rows):
        return convert(rows)
    result = np.empty((*parts, *rows.shape))
    for block in blocks or row_blocks(*rows.shape):
        result[..., block, :] = convert(rows[block])
    return result


def possible_labels(logits: Array, labels: Labels) -> Mask:
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


def usable_rows(logits: Array, labels: Labels) -> tuple[Array, Labels, int]:
    """Return logits and labels of the samples of :func:`possible_labels`, and the number of others;
    errors as there.
    """
    possible = possible_labels(logits, labels)
    if possible.all():
        return logits, labels, 0
    return logits[possible], labels[possible], int((~possible).sum())


def centred(logits: Array) -> Array:
    """Return logits ``(N, K)`` minus the mean of each row's finite values; -inf stays.

    This makes maps with different parameters per class invariant to a constant added to a row.
    """
    finite = logits > -np.inf
    if is_tensor(logits):
        total = namespace(logits).where(finite, logits, 0.0).sum(axis=1, keepdims=True)
    else:
        total = logits.sum(axis=1, keepdims=True, where=finite)
    return logits - total / finite.sum(axis=1, keepdims=True)


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
    spreads = np.empty(len(logits))
    for block in row_blocks(*logits.shape):
        gaps = -logits[block]
        finite = gaps < np.inf
        if finite.all():
            spreads[block] = gaps.std(axis=1)
        else:
            spreads[block] = np.nanstd(np.where(finite, gaps, np.nan), axis=1)
    spreads = spreads[(spreads > 0.0) & np.isfinite(spreads)]
    return float(np.median(spreads)) / TYPICAL_SPREAD if len(spreads) else 1.0


def rescaled(logits: Array, scale: float) -> Array:
    """Return logits divided by their scale; overflow becomes impossible (-inf)."""
    if scale == 1.0:
        return logits
    with np.errstate(over="ignore"):
        return logits / scale


def softmax(logits: Array) -> Array:
    """Return probabilities ``(N, K)`` of logits ``(N, K)`` whose row maximum is 0; -inf gives 0."""
    exponentials = namespace(logits).exp(logits)
    exponentials /= totals(exponentials)
    return exponentials


def is_top(logits: Array) -> Mask:
    """Return whether each class ``(N, K)`` is the predicted one, the first among ties."""
    places = namespace(logits).arange(logits.shape[1], device=logits.device)
    return places == logits.argmax(axis=1, keepdims=True)


def log_probabilities(logits: Array) -> tuple[Array, Array]:
    """Return ln p and ln (1 - p), ``(N, K)`` each, of the softmax of logits ``(N, K)`` whose row
    maximum is 0.

    Both are at least ln of the smallest normal float32.
    """

    def convert(logits: Array) -> Any:
        xp, top = namespace(logits), is_top(logits)
        exponentials = xp.exp(logits)
        total = totals(exponentials)
        # summed without the top term, because the difference would lose precision for confident
        # samples
        others = totals(xp.where(top, 0.0, exponentials))
        with np.errstate(divide="ignore"):
            log_rest = xp.log(xp.where(top, others, total - exponentials)) - xp.log(total)
        return xp.clip(logits - xp.log(total), LOG_TINY, None), xp.clip(log_rest, LOG_TINY, None)

    scores, rests = by_blocks(convert, logits, parts=(2,))
    return scores, rests


def top_label(logits: Array) -> tuple[Places, Array]:
    """Return predicted class ``(N,)`` (the first among ties) and its probability ``(N,)``; row
    maximum is 0.
    """
    return logits.argmax(axis=1), 1.0 / totals(namespace(logits).exp(logits))[:, 0]


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
    xp, top, target = namespace(logits), is_top(logits), target[:, None]
    # summed without the top term, because 1 - p would lose precision for confident samples
    others = xp.where(top, 0.0, xp.exp(logits))
    rest = totals(others)
    saturated = rest < NOTHING_LEFT
    others = xp.where(saturated, 1.0, others)
    others *= (1.0 - target) / xp.where(saturated, logits.shape[1] - 1.0, rest)
    return xp.where(top, target, others)


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
    """Divide rows of values ``(N, K)`` by their sums; rows of zeros are replaced by rows of
    ``otherwise`` ``(N, K)``.
    """
    xp, total = namespace(values), totals(values)
    return xp.where(total <= 0.0, otherwise, values / xp.where(total > 0.0, total, 1.0))


def without_impossible(logits: Array, probabilities: Array) -> Array:
    """Set the probabilities ``(N, K)`` of classes whose logit is -inf to 0, and divide their rows
    by their sums; a row without any other probability stays.
    """
    xp = namespace(logits)
    if xp is np and logits.min() > -np.inf:
        return probabilities
    wrong = (logits == -np.inf) & (probabilities > 0.0)
    if xp is np and not wrong.any():
        return probabilities
    kept = renormalised(xp.where(wrong, 0.0, probabilities), probabilities)
    return xp.where(wrong.any(axis=1, keepdims=True), kept, probabilities)


def map_classes(
    probabilities: Array,
    scores: Array,
    classes: Labels,
    calibrate: Callable[..., Array],
    *tables: Array,
) -> Array:
    """Calibrate the probabilities of each class separately, and renormalise.

    Parameters
    ----------
    probabilities, scores : ``(N, K)``; scores are what the map of a class is a function of.
    classes : ``(C,)``, classes with a map; the others keep their probability.
    calibrate : maps scores ``(N,)`` and the class's row of each table to probabilities ``(N,)``; of
        tensors, scores ``(N, C)`` and whole tables to ``(N, C)``.
    tables : numbers of the maps, ``(C, ...)``.
    """
    mapped = probabilities * 1.0  # a copy
    if is_tensor(probabilities):
        mapped[:, classes] = calibrate(scores[:, classes], *tables)
    else:
        for label, *rows in zip(classes, *tables, strict=True):
            mapped[:, label] = calibrate(np.ascontiguousarray(scores[:, label]), *rows)
    return renormalised(mapped, probabilities)
