"""Checks of the inputs of calibrators."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError

#: a logit this far below the maximum has probability 0 at every temperature, and its square is
#: finite
IMPOSSIBLE = 1e100


def _array(value: Any, name: str, dtype: type | None = None) -> NDArray[Any]:
    if hasattr(value, "detach"):  # a torch tensor, which NumPy accepts only without gradient
        value = value.detach()
    try:
        return np.asarray(value, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise DataError(f"{name} must be an array of numbers ({error}).") from None


def check_logits(logits: Any, n_classes: int | None = None) -> NDArray[np.float64]:
    """Return logits ``(N, K)`` as float64 minus their row maximum: values in [-1e100, 0], or -inf.

    A constant added to a row has no effect, and with maximum 0 no exponential overflows. -inf is an
    impossible class. Raises DataError: wrong shape or type, NaN, +inf, or a row without a finite
    logit.

    Parameters
    ----------
    logits : ``(N, K)`` real numbers, N >= 1, K >= 2; tensors too.
    n_classes : required K, if any.
    """
    array = _array(logits, "logits")
    if array.ndim != 2 or array.shape[0] < 1 or array.shape[1] < 2:
        raise DataError(f"logits must be (N, K) with N >= 1 and K >= 2, got shape {array.shape}.")
    if array.dtype.kind not in "fiu":
        raise DataError(
            f"logits must be real numbers, got {array.dtype}; convert "
            "them if they really are logits."
        )
    if n_classes is not None and array.shape[1] != n_classes:
        raise DataError(
            f"logits have {array.shape[1]} classes, but the calibrator was fitted on {n_classes}; "
            "use the same model."
        )
    largest = array.max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        row = int(np.argmin(np.isfinite(largest[:, 0])))
        raise DataError(
            f"logits row {row} has NaN, +inf or no finite value; remove such rows, or run the "
            "model in float32."
        )
    with np.errstate(over="ignore"):
        shifted = np.subtract(array, largest, dtype=np.float64)
    shifted[shifted < -IMPOSSIBLE] = -np.inf
    return shifted


def check_labels(labels: Any, n_samples: int, n_classes: int) -> NDArray[np.int64]:
    """Return labels ``(N,)`` as int64.

    Raises DataError: not integers, a different length from the logits, or a class outside [0, K).
    """
    array = _array(labels, "labels")
    if array.shape != (n_samples,):
        raise DataError(
            f"labels must be ({n_samples},), one for each row of logits, got shape {array.shape}."
        )
    if not np.issubdtype(array.dtype, np.integer):
        raise DataError(
            f"labels must be integers, got {array.dtype}; give class indices from 0 to "
            f"{n_classes - 1}."
        )
    if array.min() < 0 or array.max() >= n_classes:
        mend = "remove unlabelled samples"
        if (array.min(), array.max()) == (1, n_classes):
            mend = "subtract 1, as they seem to count from 1"
        raise DataError(
            f"labels must lie in [0, {n_classes - 1}], got {array.min()} to {array.max()}; {mend}."
        )
    return array.astype(np.int64)


def check_features(features: Any, n_samples: int, width: int | None = None) -> NDArray[np.float64]:
    """Return penultimate features ``(N, d)`` as float64.

    Raises DataError: not ``(N, d)``, a different ``width`` from the fit, or not finite.
    """
    array = _array(features, "features", np.float64)
    if array.ndim != 2 or len(array) != n_samples or array.shape[1] < 1:
        raise DataError(
            f"features must be ({n_samples}, d), one row for each row of logits, got shape "
            f"{array.shape}."
        )
    if width is not None and array.shape[1] != width:
        raise DataError(
            f"features have width {array.shape[1]}, but the calibrator was fitted on {width}: use "
            "the same model."
        )
    if not np.isfinite(array).all():
        raise DataError(
            "features have NaN or infinite values; remove such rows, or run the model in float32."
        )
    return array


def check_head(
    head: Any, n_classes: int, width: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the last layer as float64 weight ``(K, d)`` and bias ``(K,)``.

    Raises DataError: not a pair of arrays of these shapes, or not finite.
    """
    if not isinstance(head, (tuple, list)) or len(head) != 2:
        raise DataError("head must be the pair (weight, bias) of the model's last layer.")
    weight, bias = (_array(part, "head", np.float64) for part in head)
    if weight.shape != (n_classes, width) or bias.shape != (n_classes,):
        raise DataError(
            f"head must be weight ({n_classes}, {width}) and bias ({n_classes},), got "
            f"{weight.shape} and {bias.shape}."
        )
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise DataError("head has NaN or infinite values; export it again from the trained model.")
    return weight, bias
