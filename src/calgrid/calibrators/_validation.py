"""Checks of the inputs of calibrators."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators._probabilities import (
    FEWEST_ROUNDED,
    Array,
    Labels,
    logits_from_probabilities,
    resemble_probabilities,
    within_unit,
)
from calgrid.class_names import SHOWN_NAMES
from calgrid.errors import DataError, row_at, visible
from calgrid.metrics._inputs import as_array

#: what a fit knows about its inputs
INPUTS = ("n_classes", "n_samples", "kind", "binary", "class_names")
KINDS = ("logits", "probabilities")
#: integers below it are exact in float64
LARGEST_EXACT = 2**53
#: columns of a data frame that are no classes
OF_ROWS = ("label", "labels", "index")
#: a logit this far below the maximum, such as the smallest float32, has probability 0 at every
#: temperature, and differences from it lose all others
IMPOSSIBLE = 1e30
#: finite logits this far below the largest of their row, absolutely and as a multiple of the
#: smallest distance, look like masks such as -1e4
MASK_GAP = 1000.0


def as_logits(values: Any, kind: str) -> Any:
    """Return logits for values of a kind, ``(N, K)`` or ``(N,)`` for class 1 of two.

    Raises
    ------
    DataError : the values are not of the kind, as far as they show it.
    """
    if kind not in KINDS:
        raise DataError(f"kind must be one of {', '.join(KINDS)}, got {kind!r}.")
    array = as_array(values, kind)
    one_column = array.ndim == 1 and array.size > 0 and array.dtype.kind in "fiu"
    if one_column:
        other = 1 - array if kind == "probabilities" else np.zeros_like(array)
        array = np.column_stack([other, array])
    if kind == "probabilities":
        return logits_from_probabilities(array)
    if not one_column and array.ndim == 2 and array.size and resemble_probabilities(array):
        raise DataError(
            "logits are non-negative and sum to 1 in every row, or to about 1 or 100, like "
            "probabilities; give kind='probabilities' (divide each row by its sum if it is not 1), "
            "or, if they are logits, subtract 1 from all, which does not change the softmax."
        )
    return array


def check_one_column(logits: NDArray[Any]) -> None:
    """Raise DataError if logits of class 1 of two look like probabilities, ``(N, 2)`` with zeros
    for class 0.
    """
    if within_unit(logits):
        raise DataError(
            "logits of class 1 lie between 0 and 1 like probabilities; give kind='probabilities', "
            "or, if they are logits, two columns, np.column_stack([0 * z, z])."
        )


def sigmoid_warnings(logits: NDArray[Any]) -> list[str]:
    """Return a warning if logits ``(N, K)`` look like the outputs of a sigmoid for each class."""
    if len(logits) < FEWEST_ROUNDED or not within_unit(logits):
        return []
    return [
        "All logits lie between 0 and 1, like probabilities of each class alone: if they are "
        "outputs of a sigmoid, give the numbers before it, or say that they are probabilities."
    ]


def mask_warnings(logits: Array) -> list[str]:
    """Return a warning if most rows of logits ``(N, K)`` with row maximum 0 seem to have finite
    masks, which are logits like any other to a fit.
    """
    if logits.min() >= -MASK_GAP:
        return []
    far = (logits < -MASK_GAP).any(axis=1)
    if 2 * far.sum() <= len(logits):
        return []
    gaps = -logits[far]
    smallest = np.where(gaps > 0.0, gaps, np.inf).min(axis=1, keepdims=True)
    masked = (gaps > MASK_GAP * np.maximum(smallest, 1.0)) & (gaps < np.inf)
    if 2 * masked.any(axis=1).sum() <= len(logits):
        return []
    return [
        f"Most rows have finite logits that are {MASK_GAP:,.0f} times as far below the largest as "
        "another one, like masks: give -inf for classes that are impossible."
    ]


def _given_names(values: Any, names: Sequence[str | int] | None) -> list[Any] | None:
    """Return class names as given, or the column names of a data frame; DataError if a column is
    for labels or row numbers.
    """
    if names is not None:
        return list(names)
    columns = getattr(values, "columns", None)
    is_numbering = getattr(columns, "start", None) == 0 and getattr(columns, "step", None) == 1
    if columns is None or is_numbering:  # pandas numbers columns that have no names
        return None
    found = list(columns)
    for name in OF_ROWS:
        if name in found:
            raise DataError(
                f"logits has a column '{name}', which is no class; leave it out of the data frame, "
                "or give class_names if it is one."
            )
    return found if all(isinstance(name, (str, int, np.integer)) for name in found) else None


def check_names(
    values: Any, names: Sequence[str | int] | None, shape: tuple[int, ...]
) -> tuple[str, ...] | None:
    """Return names of classes, by default of the columns of a data frame, as text; None without
    any.

    Raises
    ------
    DataError : they are not one different name per column of logits of the given shape, or a
        column has no logits.
    """
    given = _given_names(values, names)
    if given is None:
        return None
    found = [str(name) for name in given]
    if shape[1:] != (len(set(found)),) or len(set(found)) < len(found):
        raise DataError(
            f"class_names must be one different name per column, got {len(found)} for logits of "
            f"shape {shape}: {visible(', '.join(found))}."
        )
    return tuple(found)


def check_indices(values: Any, names: Sequence[str | int] | None, labels: Labels) -> None:
    """Raise DataError if labels may be names of classes instead of places of columns: names are
    whole numbers in another order than 0 to K - 1, and each label is one of them.
    """
    given = _given_names(values, names) or []
    if not all(isinstance(name, (int, np.integer)) for name in given):
        return
    if given != list(range(len(given))) and np.isin(labels, given).all():
        raise DataError(
            "labels are numbers that are also names of classes, in another order "
            f"({', '.join(map(str, given))}); put the columns into the order 0 to K - 1, or give "
            "labels as places of columns and class_names as text."
        )


def in_order(
    logits: NDArray[Any], names: Sequence[str] | None, fitted: Sequence[str] | None
) -> NDArray[Any]:
    """Return the columns of logits ``(N, K)`` in the class order of the fit, if both have names; a
    fit without names numbers its classes from 0.

    Raises
    ------
    DataError : the classes differ.
    """
    numbers = [str(place) for place in range(logits.shape[1])]
    if fitted is None and names is not None and sorted(names) == sorted(numbers):
        fitted = numbers
    if names is None or fitted is None or tuple(names) == tuple(fitted):
        return logits
    if set(names) != set(fitted):
        mend = "use the same model"
        for name in filter(names[0].endswith, fitted):
            start = names[0].removesuffix(name)
            if {start + each for each in fitted} == set(names):
                mend = f"remove '{visible(start)}' from the names of the columns"
        raise DataError(
            f"the calibrator was fitted on the classes {visible(', '.join(fitted))}, but these are "
            f"{visible(', '.join(names))}; {mend}."
        )
    return logits[:, [names.index(name) for name in fitted]]


def check_logits(logits: Any, n_classes: int | None = None) -> Array:
    """Return logits ``(N, K)`` as float64 minus their row maximum: values in [-1e30, 0], or -inf.

    A constant added to a row has no effect, and with maximum 0 no exponential overflows. -inf is an
    impossible class.

    Parameters
    ----------
    logits : ``(N, K)`` real numbers, N >= 1, K >= 2; tensors too.
    n_classes : required K, if any.

    Raises
    ------
    DataError : wrong shape or type, NaN, +inf, or a row without a finite logit.
    """
    array = as_array(logits, "logits")
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"logits must be real numbers, got {array.dtype}; convert them if they really are "
            "logits."
        )
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise DataError(f"logits must be (N, K) with N >= 1 and K >= 2, got shape {array.shape}.")
    if n_classes is not None and array.shape[1] != n_classes:
        raise DataError(
            f"logits have {array.shape[1]} classes, but the calibrator was fitted on {n_classes}; "
            "use the same model."
        )
    largest = array.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        row = int(np.argmin(np.isfinite(largest[:, 0])))
        raise DataError(
            f"logits {row_at(row)} has NaN, +inf or no finite value; remove such rows, or run the "
            "model in float32."
        )
    with np.errstate(over="ignore"):
        shifted = np.subtract(array, largest, dtype=np.float64)
    shifted[shifted < -IMPOSSIBLE] = -np.inf
    return shifted


def check_row_order(logits: Any, labels: Any) -> None:
    """Raise DataError if pandas has the same rows of logits and labels in another order."""
    indices: list[Any] = [getattr(values, "index", None) for values in (logits, labels)]
    if not all(hasattr(index, "equals") for index in indices):
        return
    rows, others = indices
    if len(rows) == len(others) and not rows.equals(others) and set(rows) == set(others):
        raise DataError(
            "labels has the rows of logits in another order, by the index; give "
            "labels.loc[logits.index], or labels.to_numpy() if its order is right."
        )


def plain_labels(labels: NDArray[Any], n_classes: int, where: str = "") -> NDArray[Any]:
    """Return class numbers ``(N,)`` of labels ``(N, 1)``, one-hot rows ``(N, K)``, whole floats,
    or, for two classes, False and True; other labels as they are.

    Raises
    ------
    DataError : a row of labels ``(N, K)`` is not one-hot; the message begins with ``where``.
    """
    if labels.shape[1:] == (1,):
        labels = labels.reshape(-1)
    if labels.ndim == 2 and labels.shape[1] == n_classes and labels.dtype.kind in "biuf":
        one_hot = np.isin(labels, (0, 1)).all(axis=1) & (labels.sum(axis=1) == 1)
        if not one_hot.all():
            raise DataError(
                f"{where}labels (N, K) must be one-hot, but {row_at(int(one_hot.argmin()))} is "
                "not; give one class for each row."
            )
        return labels.argmax(axis=1)
    are_whole = labels.dtype.kind == "f" and (labels == np.rint(labels)).all()
    if are_whole and (np.abs(labels) < LARGEST_EXACT).all():
        return labels.astype(np.int64)
    return labels.astype(np.int64) if labels.dtype.kind == "b" and n_classes == 2 else labels


def check_labels(
    labels: Any, n_samples: int, n_classes: int, names: Sequence[str] | None = None
) -> Labels:
    """Return labels as class numbers ``(N,)``, from :func:`plain_labels` or text in ``names``.

    Raises
    ------
    DataError : not integers, a different length from the logits, a class outside [0, K), or text
        that is none of the names.
    """
    array = plain_labels(as_array(labels, "labels"), n_classes)
    if names is not None and array.dtype.kind in "OU" and array.ndim == 1:
        unknown = [row for row, name in enumerate(array) if name not in names]
        if unknown:
            row = unknown[0]
            raise DataError(
                f"label '{visible(array[row])}' in {row_at(row)} is not one of the classes "
                f"{visible(', '.join(names[:SHOWN_NAMES]))}; correct it, or class_names."
            )
        array = np.array([names.index(name) for name in array])
    if array.shape != (n_samples,):
        raise DataError(
            f"labels must be ({n_samples},), one for each row of logits, got shape {array.shape}."
        )
    if not np.issubdtype(array.dtype, np.integer):
        has_nan = array.dtype.kind == "f" and np.isnan(array).any()
        raise DataError(
            f"labels must be integers, got {'NaN' if has_nan else array.dtype}; give class "
            f"indices from 0 to {n_classes - 1}, or names with class_names."
        )
    if array.min() < 0 or array.max() >= n_classes:
        mend = "remove unlabelled samples"
        if (array.min(), array.max()) == (1, n_classes):
            mend = "subtract 1, as they seem to count from 1"
        if names is not None and {*map(str, np.unique(array))} <= {*names}:
            mend = "give names of classes as text"
        raise DataError(
            f"labels must lie in [0, {n_classes - 1}], got {array.min()} to {array.max()}; {mend}."
        )
    return array.astype(np.int64)


def check_features(
    features: Any, n_samples: int, width: int | None = None, calibrator: str = ""
) -> Array:
    """Return penultimate features ``(N, d)`` as float64.

    Raises
    ------
    DataError : none, not ``(N, d)``, a different ``width`` from the fit, or not finite.
    """
    if features is None:
        raise DataError(
            f"Calibrator '{calibrator}' needs features (N, d); export the penultimate layer's "
            "output too."
        )
    array = as_array(features, "features", np.float64)
    if array.ndim != 2 or len(array) != n_samples or array.shape[1] < 1:
        raise DataError(
            f"features must be ({n_samples}, d), one row for each row of logits, got shape "
            f"{array.shape}."
        )
    if width is not None and array.shape[1] != width:
        raise DataError(
            f"features have width {array.shape[1]}, but the calibrator was fitted on {width}; use "
            "the same model."
        )
    if not np.isfinite(array).all():
        raise DataError(
            "features have NaN or infinite values; remove such rows, or run the model in float32."
        )
    return array


def check_head(head: Any, n_classes: int, width: int, calibrator: str = "") -> tuple[Array, Array]:
    """Return the last layer as float64 weight ``(K, d)`` and bias ``(K,)``.

    Raises
    ------
    DataError : none, not a pair of arrays of these shapes, or not finite.
    """
    if head is None:
        raise DataError(
            f"Calibrator '{calibrator}' needs head (weight, bias); export the model's last layer "
            "too."
        )
    if not isinstance(head, (tuple, list)) or len(head) != 2:
        raise DataError("head must be the pair (weight, bias) of the model's last layer.")
    weight, bias = (as_array(part, "head", np.float64) for part in head)
    if weight.shape != (n_classes, width) or bias.shape != (n_classes,):
        raise DataError(
            f"head must be weight ({n_classes}, {width}) and bias ({n_classes},), got "
            f"{weight.shape} and {bias.shape}."
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise DataError("head has NaN or infinite values; export it again from the trained model.")
    return weight, bias
