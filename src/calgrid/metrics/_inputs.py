"""Validated probabilities and labels, the input of every metric."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.errors import ConfigError, DataError, row_at
from calgrid.metrics.moments import row_blocks, row_sums

P = ParamSpec("P")
R = TypeVar("R")

Floats = NDArray[np.float64]
Places = NDArray[np.intp]
Mask = NDArray[np.bool_]
#: tolerance of row sums and of the range [0, 1] for float64 input
TOLERANCE = 1e-6
TOLERANCE_LOW_PRECISION = 1e-4
#: confidence from which its distance to 1 has lost digits
CERTAIN = 1 - 1e-6
#: smallest positive float64
TINY = math.ulp(0.0)


@dataclass(frozen=True)
class Output:
    """Probabilities of a model with their logarithms; metrics accept it as ``probs``, and NumPy as
    the array of probabilities.

    Attributes
    ----------
    probs : floats (N, K), rows in the probability simplex.
    logs : ln of ``probs``, float64 (N, K), -inf for ln 0; exact where ``probs`` round to 0 or 1.
        None if unknown.
    """

    probs: NDArray[Any]
    logs: Floats | None = None

    @classmethod
    def of_scores(cls, scores: NDArray[Any], largest: Floats | float = 0.0) -> "Output":
        """The softmax of scores (N, K), with the row maximum ``largest`` (N, 1); -inf gives the
        probability 0.
        """
        probs, logs = np.empty(scores.shape), np.empty(scores.shape)
        maxima = np.broadcast_to(largest, (len(scores), 1))
        for block in row_blocks(*scores.shape):
            below = np.asarray(scores[block], dtype=np.float64, order="C") - maxima[block]
            np.exp(below, out=probs[block])
            total = row_sums(probs[block])[:, None]
            probs[block] /= total
            np.subtract(below, np.log(total), out=logs[block])
        return cls(probs, logs)

    @property
    def log_probs(self) -> Floats:
        """``logs``, or else ln of ``probs``, (N, K); -inf for ln 0."""
        return _logarithms(self.probs) if self.logs is None else self.logs

    @classmethod
    def joined(cls, parts: Sequence["Output"]) -> "Output":
        """Rows of all parts of one model, in their order."""
        logs = [part.logs for part in parts if part.logs is not None]
        probs = np.concatenate([part.probs for part in parts])
        return cls(probs, np.concatenate(logs) if len(logs) == len(parts) else None)

    @property
    def shape(self) -> tuple[int, ...]:
        """(N, K)."""
        return self.probs.shape

    def __len__(self) -> int:
        return len(self.probs)

    def __getitem__(self, rows: Any) -> "Output":
        """The output for some rows."""
        return Output(self.probs[rows], None if self.logs is None else self.logs[rows])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.probs, dtype=dtype, copy=copy)


@dataclass(frozen=True)
class Predictions:
    """Probabilities and labels validated by :func:`check_probabilities`; metrics accept it as
    ``probs``.

    Attributes
    ----------
    probs : float64 (N, K), rows in the probability simplex.
    labels : int64 (N,), in [0, K).
    logs : ln of the probabilities as in :class:`Output`, or None.
    least : smallest positive number of the type of the given probabilities; in the NLL it stands
        for 0.
    """

    probs: Floats
    labels: NDArray[np.int64]
    logs: Floats | None = None
    least: float = TINY

    @property
    def n_samples(self) -> int:
        """N, at least 1."""
        return self.probs.shape[0]

    @cached_property
    def confidence(self) -> Floats:
        """Largest probability of each row, (N,)."""
        return self.probs.max(axis=1)

    @cached_property
    def correct(self) -> Floats:
        """1.0 where the first arg max of a row is its label, else 0.0, (N,)."""
        return (self.probs.argmax(axis=1) == self.labels).astype(np.float64)

    @cached_property
    def label_probs(self) -> Floats:
        """Probability of the label of each row, (N,)."""
        return self.probs[np.arange(self.n_samples), self.labels]

    @cached_property
    def label_logs(self) -> Floats:
        """Logarithm of the probability of the label of each row, (N,); -inf where it is 0."""
        if self.logs is not None:
            return self.logs[np.arange(self.n_samples), self.labels]
        return _logarithms(self.label_probs)

    @property
    def n_impossible(self) -> int:
        """Number of rows whose label has the probability 0, and so an infinite NLL."""
        return int(np.isneginf(self.label_logs).sum())

    def rows(self, rows: Places) -> "Predictions":
        """The predictions for some rows."""
        logs = None if self.logs is None else self.logs[rows]
        return Predictions(self.probs[rows], self.labels[rows], logs, self.least)

    @cached_property
    def shared(self) -> dict[Any, Any]:
        """Results of functions that several metrics share: see :func:`computed_once`."""
        return {}

    @cached_property
    def certainty(self) -> Floats:
        """-ln(1 - confidence), (N,), to order samples whose confidences round to one number; 0
        below ``CERTAIN`` and without ``logs``.
        """
        certainty = np.zeros(self.n_samples)
        if self.logs is not None:
            near = np.flatnonzero(self.confidence > CERTAIN)
            others = self.logs[near]
            others[np.arange(len(near)), self.probs[near].argmax(axis=1)] = -np.inf
            others.sort(axis=1)  # as in row_sums
            certainty[near] = -special.logsumexp(others, axis=1)
        return certainty

    @cached_property
    def order(self) -> Places:
        """Stable order of ascending confidence, then certainty, (N,)."""
        return np.lexsort((self.certainty, self.confidence))

    @cached_property
    def tie_ends(self) -> Places:
        """Position in this order after the last of each run of equal samples, (G,)."""
        confidence, certainty = self.confidence[self.order], self.certainty[self.order]
        differ = (confidence[1:] != confidence[:-1]) | (certainty[1:] != certainty[:-1])
        return np.flatnonzero(np.append(differ, True)) + 1


Probabilities = ArrayLike | Output | Predictions


def computed_once(
    function: Callable[Concatenate[Predictions, P], R],
) -> Callable[Concatenate[Predictions, P], R]:
    """Memoise the result of a function on its Predictions; other arguments are hashable."""

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
        of less than 64 bits). Entries are clipped to [0, 1] within this tolerance. An `Output`
        adds its logarithms; `Predictions` pass unchanged.
    labels : integers (N,), in [0, K). Rows without a label (-1, as in out-of-distribution sets) are
        refused.

    Raises
    ------
    DataError : an argument is not as described; the message names it, the row and the value.
    """
    if isinstance(probs, Predictions):
        return probs
    array = _as_numbers(probs, "probs")
    checked = check_rows(array, "probs")
    known = _check_labels(labels, *checked.shape)
    logs = probs.logs if isinstance(probs, Output) else None
    is_low = array.dtype in (np.float16, np.float32)
    least = float(np.finfo(array.dtype).smallest_subnormal) if is_low else TINY
    return Predictions(checked, known, logs, least)


def from_logits(logits: ArrayLike) -> Output:
    """Return the softmax of logits or log-probabilities (N, K), with its logarithms in double
    precision, for metrics.

    Probabilities alone round to 0 or 1 where logits are far apart. -inf gives the probability 0.

    Raises
    ------
    DataError : not a rectangular array (N, K) of real numbers, N, K >= 1; NaN or +inf; a row of
        -inf alone.

    Examples
    --------
    >>> from calgrid.metrics import nll
    >>> nll(from_logits([[0.0, -1000.0]]), [1])
    1000.0
    """
    array = _as_numbers(logits, "logits")
    if array.ndim != 2 or 0 in array.shape:
        raise DataError(f"logits must have shape (N, K), N, K >= 1, got {array.shape}.")
    largest = np.asarray(array.max(axis=1, keepdims=True), dtype=np.float64)
    if not (largest < np.inf).all():
        rows = np.asarray(array, dtype=np.float64)
        raise _bad_entry("logits", rows, ~(rows < np.inf), "must be finite or -inf")
    if np.isneginf(largest).any():
        raise DataError(f"logits must not all be -inf in {row_at(int(largest.argmin()))}.")
    with np.errstate(over="ignore"):
        return Output.of_scores(array, largest)


def check_rows(probs: ArrayLike, name: str) -> Floats:
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
            f"{name} must have rows that sum to 1 within {tolerance:g}, {row_at(row)} sums to "
            f"{sums[row]:.8g}; compute the softmax in float32, or divide each row by its sum."
        )
    return rows


def _logarithms(probs: NDArray[Any]) -> Floats:
    """Natural logarithms as float64, -inf of 0."""
    with np.errstate(divide="ignore"):
        return np.log(probs, dtype=np.float64)


def check_bins(n_bins: int) -> int:
    """Return ``n_bins``, or raise ConfigError unless it is an integer of at least 1."""
    if isinstance(n_bins, bool) or not isinstance(n_bins, (int, np.integer)) or n_bins < 1:
        raise ConfigError(f"n_bins must be an integer of at least 1, got {n_bins!r}.")
    return int(n_bins)


def as_array(values: Any, name: str, dtype: type | None = None) -> NDArray[Any]:
    """Return values, also of a PyTorch tensor, as an array; DataError for masked entries, or if
    they form no rectangular array of ``dtype`` (None: any).
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


def _bad_entry(name: str, rows: Floats, bad: Mask, rule: str) -> DataError:
    row, column = np.argwhere(bad)[0]
    return DataError(
        f"{name} {rule}, got {rows[row, column]:.6g} in {row_at(row)}, class {column}."
    )


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
        raise DataError(
            f"labels must be in [0, {n_classes}), got {array[row]} in {row_at(row)}{hint}."
        )
    return array.astype(np.int64)
