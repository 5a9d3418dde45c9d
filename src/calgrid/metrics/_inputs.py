"""Validated probabilities and labels, the input of every metric."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import ConfigError, DataError

P = ParamSpec("P")
R = TypeVar("R")

#: tolerance of row sums and of the range [0, 1] for float64 input
TOLERANCE = 1e-6
TOLERANCE_LOW_PRECISION = 1e-4


@dataclass(frozen=True)
class Predictions:
    """Probabilities and labels validated by :func:`check_probabilities`; metrics accept it as
    ``probs``.

    Attributes
    ----------
    probs : float64 (N, K), rows in the probability simplex.
    labels : int64 (N,), in [0, K).
    """

    probs: NDArray[np.float64]
    labels: NDArray[np.int64]

    @property
    def n_samples(self) -> int:
        """N, at least 1."""
        return self.probs.shape[0]

    @cached_property
    def confidence(self) -> NDArray[np.float64]:
        """Largest probability of each row, (N,)."""
        return self.probs.max(axis=1)

    @cached_property
    def correct(self) -> NDArray[np.float64]:
        """1.0 where the first arg max of a row is its label, else 0.0, (N,)."""
        return (self.probs.argmax(axis=1) == self.labels).astype(np.float64)

    @cached_property
    def label_probs(self) -> NDArray[np.float64]:
        """Probability of the label of each row, (N,)."""
        return self.probs[np.arange(self.n_samples), self.labels]

    @cached_property
    def shared(self) -> dict[Any, Any]:
        """Results of functions that several metrics share: see :func:`computed_once`."""
        return {}

    @cached_property
    def order(self) -> NDArray[np.intp]:
        """Stable order of ascending confidence, (N,)."""
        return np.argsort(self.confidence, kind="stable")


Probabilities = ArrayLike | Predictions


def computed_once(
    function: Callable[Concatenate[Predictions, P], R],
) -> Callable[Concatenate[Predictions, P], R]:
    """Keep what a function of predictions returns with them; its other arguments are hashable."""

    @wraps(function)
    def known(predictions: Predictions, /, *args: P.args, **kwargs: P.kwargs) -> R:
        key = (function, *args, *kwargs.items())
        if key not in predictions.shared:
            predictions.shared[key] = function(predictions, *args, **kwargs)
        result: R = predictions.shared[key]
        return result

    return known


def check_probabilities(probs: Probabilities, labels: ArrayLike) -> Predictions:
    """Return validated probabilities and labels as float64 and int64 arrays; logits are refused.

    Parameters
    ----------
    probs : array (N, K), N >= 1, finite, in [0, 1], rows summing to 1 within 1e-6 (1e-4 for input
        of less than 64 bits). Entries are clipped to [0, 1] within this tolerance. `Predictions`
        pass unchanged.
    labels : integers (N,), in [0, K). Rows without a label (-1, as in out-of-distribution sets) are
        refused.

    Raises
    ------
    DataError : an argument is not as described; the message names it, the row and the value.
    """
    if isinstance(probs, Predictions):
        return probs
    checked = check_rows(probs, "probs")
    return Predictions(checked, _check_labels(labels, *checked.shape))


def check_rows(probs: ArrayLike, name: str) -> NDArray[np.float64]:
    """Return validated ``probs`` as float64 (N, K); ``name`` is the argument in messages."""
    array = _as_numbers(probs, name)
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"{name} must have shape (N, K) with N >= 1 and K >= 1, got {array.shape}.")
    is_exact = array.dtype.kind in "iub" or array.dtype.itemsize >= 8
    tolerance = TOLERANCE if is_exact else TOLERANCE_LOW_PRECISION
    # rounding of sums must not depend on the layout
    rows = np.asarray(array, dtype=np.float64, order="C")
    lowest, highest = rows.min(), rows.max()
    if not (np.isfinite(lowest) and np.isfinite(highest)):
        raise _bad_entry(name, rows, ~np.isfinite(rows), "must be finite")
    if lowest < -tolerance or highest > 1 + tolerance:
        outside = (rows < -tolerance) | (rows > 1 + tolerance)
        rule = "must hold probabilities in [0, 1] (apply a softmax to logits first)"
        raise _bad_entry(name, rows, outside, rule)
    if lowest < 0 or highest > 1:
        rows = rows.clip(0, 1)
    sums = rows.sum(axis=1)
    bad = np.abs(sums - 1) > tolerance
    if bad.any():
        row = int(bad.argmax())
        raise DataError(
            f"{name} must have rows that sum to 1 within {tolerance:g}, row {row} sums to "
            f"{sums[row]:.8g}; compute the softmax in float32, or divide each row by its sum."
        )
    return rows


def check_bins(n_bins: int) -> int:
    """Return ``n_bins``, or raise ConfigError unless it is an integer of at least 1."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ConfigError(f"n_bins must be an integer of at least 1, got {n_bins!r}.")
    return int(n_bins)


def as_array(values: Any, name: str, dtype: type | None = None) -> NDArray[Any]:
    """Return values as an array, also those of a tensor of PyTorch; masked entries, and what is no
    rectangular array of ``dtype`` (None: of any), raise DataError.
    """
    if hasattr(values, "detach"):
        values = values.detach()  # NumPy refuses tensors with a gradient, and bfloat16
        if str(values.dtype) == "torch.bfloat16":
            values = values.float()
    if np.ma.is_masked(values):
        raise DataError(f"{name} has masked entries; fill them, or remove their rows.")
    try:
        return np.asarray(values, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be a rectangular array of numbers: {error}.") from None


def _as_numbers(values: ArrayLike, name: str) -> NDArray[Any]:
    array = as_array(values, name)
    if array.dtype.kind not in "fiub":
        raise DataError(f"{name} must hold real numbers, got dtype {array.dtype}.")
    return array


def _bad_entry(
    name: str, rows: NDArray[np.float64], bad: NDArray[np.bool_], rule: str
) -> DataError:
    row, column = np.argwhere(bad)[0]
    return DataError(f"{name} {rule}, got {rows[row, column]:.6g} in row {row}, class {column}.")


def _check_labels(labels: ArrayLike, n_samples: int, n_classes: int) -> NDArray[np.int64]:
    array = _as_numbers(labels, "labels")
    if array.ndim != 1 or len(array) != n_samples:
        raise DataError(
            f"labels must have shape ({n_samples},) as probs has that many rows, got {array.shape}."
        )
    if array.dtype.kind not in "iu":
        found = "NaN" if np.isnan(array).any() else f"dtype {array.dtype}"
        raise DataError(f"labels must be integers, got {found}.")
    bad = (array < 0) | (array >= n_classes)
    if bad.any():
        row = int(bad.argmax())
        hint = ""
        if array[row] == -1:
            hint = " (rows without a label, such as out-of-distribution ones, cannot be scored)"
        raise DataError(f"labels must be in [0, {n_classes}), got {array[row]} in row {row}{hint}.")
    return array.astype(np.int64)
