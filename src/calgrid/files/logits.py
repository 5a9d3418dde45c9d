"""Logits and labels from the user's files; the kind of the numbers is always stated, never guessed."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.errors import DataError
from calgrid.files.arrays import UNNAMED, Columns, class_columns, load
from calgrid.progress import log
from calgrid.storage.logits import Logits, validate_logits

LABEL_NAMES = ("label", "labels", "y", "target", "targets")
#: names of the array of each kind
VALUE_NAMES = {
    "logits": ("logits", "logit"),
    "probabilities": ("probabilities", "probs", "probability", "prob"),
}
#: optional arrays
EXTRAS = ("index", "shift", "severity", "features", "distribution")
PROBABILITY_TOLERANCE = 1e-3
#: integers below it are exact in float64
LARGEST_EXACT = 2**53
#: maximum deviation of row sums from 1 in the metrics: for float64, and for smaller types
SCORED_TOLERANCE = {True: 1e-6, False: 1e-4}


def read_any(
    path: Path,
    kind: str,
    labels: Path | None = None,
    *,
    values_key: str | None = None,
    label_key: str | None = None,
    classes: Sequence[str] | None = None,
    binary: bool = False,
) -> Logits:
    """Read logits and labels from array files (.npz, .npy, .safetensors, .pt) and tables (Parquet,
    .csv, .arrow).

    Parameters
    ----------
    kind : ``"logits"`` or ``"probabilities"``. Probabilities are returned unchanged, and their
        logarithm as logits.
    labels : file of the labels, if not ``path``.
    values_key : name of the array or column of logits or probabilities, or prefix of such columns.
    label_key : name of the array or column of labels.
    classes : names of the classes, in the order of the columns; labels may be such names.
    binary : whether the numbers are one column, for class 1 of two.

    Raises DataError: the file is missing or damaged, its numbers are not of the kind (also logits
    that are probabilities in every row), rows have no label, or an index is repeated.
    """
    arrays = load(path)
    label_names = (label_key,) if label_key else LABEL_NAMES
    truth = _named(arrays, label_names, path) if labels is None else _labels_of(labels, label_names)
    values = arrays[UNNAMED] if UNNAMED in arrays else _values(arrays, kind, values_key, path)
    if values is None and isinstance(arrays, Columns):
        others = (
            *label_names,
            *EXTRAS,
            *(name for names in VALUE_NAMES.values() for name in names),
        )
        columns, classes = class_columns(arrays, others, truth, values_key, classes)
        values = arrays.stacked(columns) if columns else None
    if truth is None or values is None:
        raise DataError(_missing(arrays, kind, path))
    data = _checked(arrays, values, truth, kind, path, classes, binary)
    data.metadata = arrays.metadata if isinstance(arrays, Columns) else {}
    if (data.label < 0).any():
        raise DataError(
            f"{path}: {int((data.label < 0).sum())} rows have no label (-1); they cannot be scored."
        )
    order = np.lexsort(row_keys(data))
    twice = np.logical_and.reduce(
        [values[order][1:] == values[order][:-1] for values in row_keys(data)]
    )
    if twice.any():
        raise DataError(
            f"{path} has index {data.index[order][int(twice.argmax())]} more than once, but rows "
            f"are paired by index; "
            "make it unique, or remove 'index'."
        )
    return data


def row_keys(data: Logits) -> list[np.ndarray]:
    """Columns that identify the rows of a file, in the order of ``numpy.lexsort`` (the primary key
    last).
    """
    return [values for values in (data.index, data.severity, data.shift) if values is not None]


def predicted(data: Logits) -> np.ndarray:
    """Return the probabilities (N, K) of a file unchanged, or the softmax of its logits."""
    if data.probabilities is not None:
        return data.probabilities
    return build_calibrator("none").fit(data.logits, data.label).predict_proba(data.logits)


def _values(arrays: Mapping[str, Any], kind: str, key: str | None, path: Path) -> np.ndarray | None:
    """The array of logits or probabilities, or None."""
    if key is not None:
        return arrays.get(key)
    values = _named(arrays, VALUE_NAMES[kind], path)
    if values is None and kind == "probabilities":
        values = arrays.get("logits")  # checked below
    if values is None:
        for other, names in VALUE_NAMES.items():
            if (found := next((name for name in names if name in arrays), None)) is not None:
                raise DataError(
                    f"{path} should contain {kind}, but it contains '{found}'; give --kind {other} "
                    f"(in a study, kind: "
                    f"{other}), or rename the array to '{VALUE_NAMES[kind][0]}'."
                )
    return values


def _labels_of(path: Path, names: Sequence[str]) -> np.ndarray:
    arrays = load(path)
    found = arrays[UNNAMED] if UNNAMED in arrays else _named(arrays, names, path)
    if found is None:
        raise DataError(
            f"{path} must contain labels named '{names[0]}', it contains {_content(arrays)}; give "
            f"their name with "
            "--label-key (in a study, label_key)."
        )
    return found


def _content(arrays: Mapping[str, Any]) -> str:
    return ", ".join(sorted(arrays)) or "nothing"


def _missing(arrays: Mapping[str, Any], kind: str, path: Path) -> str:
    if UNNAMED in arrays:
        return f"{path} contains one array without labels; give them with --labels (in a study, test_labels)."
    return (
        f"{path} must contain an array '{VALUE_NAMES[kind][0]}' (N, K), or one column per class, "
        f"and an array 'label' "
        f"(N,), it contains {_content(arrays)}; give their names with --values-key and --label-key "
        f"(in a study, "
        "values_key and label_key), those of columns also with --classes."
    )


def _checked(
    arrays: Mapping[str, Any],
    values: np.ndarray,
    labels: np.ndarray,
    kind: str,
    path: Path,
    classes: Sequence[str] | None,
    binary: bool,
) -> Logits:
    one_column = values.ndim == 1 or values.shape[1:] == (1,)
    if binary and not one_column:
        raise DataError(
            f"{path}: --binary needs one column, for class 1, but {kind} have shape {values.shape}."
        )
    if one_column and not binary:
        if labels.ndim == 2 and labels.shape[1] > 1:
            raise DataError(
                f"{path}: {kind} have shape {values.shape} and labels {labels.shape}, they seem to "
                f"be swapped; give "
                f"{kind} one column per class, and labels one number per row."
            )
        raise DataError(
            f"{path}: {kind} must have shape (N, K), one column per class, got {values.shape}; if "
            f"they are for class 1 "
            "of two classes, give --binary (in a study, binary: true)."
        )
    extras: dict[str, Any] = {name: arrays[name] for name in EXTRAS if name in arrays}
    for name in {"features", "distribution"} & set(extras):
        extras[name] = _float32(extras[name], name, path)
    _float32(values, kind, path)  # raises DataError if they are not numbers
    if binary:
        values = _both_classes(values.reshape(-1), kind, path)
    labels = _class_numbers(labels, values.shape[1:], classes, path)
    logits = _float32(values, kind, path)
    data = Logits(**{"index": np.arange(labels.size), **extras}, label=labels, logits=logits)
    validate_logits(data, str(path))
    # after the validation: a cast could turn a wrong number into a valid one
    data.label, data.index = labels.astype(np.int32), data.index.astype(np.int32)
    if kind == "logits" and _are_probabilities(values):
        raise DataError(
            f"{path} should contain logits, but every row is non-negative and sums to 1 like "
            f"probabilities; give "
            "--kind probabilities (in a study, kind: probabilities), or, if they are logits, "
            "subtract 1 from all, "
            "which does not change the softmax."
        )
    if kind == "probabilities":
        data.probabilities = _checked_probabilities(values, path)
        data.logits = logits_from_probabilities(data.probabilities).astype(np.float32)
    return data


def _both_classes(values: np.ndarray, kind: str, path: Path) -> np.ndarray:
    """Convert numbers (N,) of class 1 to numbers (N, 2) of both classes."""
    if kind == "probabilities":
        return np.column_stack([1 - values, values])
    if values.size and values.min() >= 0 and values.max() <= 1:
        log(
            f"Warning: {path} should contain logits, but all are between 0 and 1 like "
            f"probabilities; if they are, give "
            "--kind probabilities (in a study, kind: probabilities)."
        )
    return np.column_stack([np.zeros_like(values), values])


def _class_numbers(
    labels: np.ndarray, width: tuple[int, ...], classes: Sequence[str] | None, path: Path
) -> np.ndarray:
    """Convert names of classes, one-hot rows, a column (N, 1) or whole numbers of a float type to
    class numbers.
    """
    if classes and width not in ((), (len(classes),)):
        raise DataError(
            f"{path} has {width[0]} columns for the {len(classes)} classes {', '.join(classes)}."
        )
    if labels.shape[1:] == (1,):
        labels = labels.reshape(-1)
    if labels.dtype.kind in "OUS":
        words = labels.astype(str)
        if not classes:
            some = ", ".join(np.unique(words)[:3])
            raise DataError(
                f"{path}: labels are text ({some}); give the classes in the order of the columns, "
                f"--classes A,B,... "
                "(in a study, classes: [A, B, ...])."
            )
        number = {name: place for place, name in enumerate(classes)}
        if unknown := sorted(set(words.ravel().tolist()) - set(number)):
            raise DataError(
                f"{path}: label '{unknown[0]}' is not one of the classes {', '.join(classes)}."
            )
        return np.array([number[word] for word in words.ravel().tolist()], np.int64).reshape(
            words.shape
        )
    one_hot = labels.ndim == 2 and labels.shape[1:] == width and np.isin(labels, (0, 1)).all()
    if one_hot and (labels.sum(axis=1) == 1).all():
        return labels.argmax(axis=1)
    if (
        labels.dtype.kind == "f"
        and ((labels == np.rint(labels)) & (np.abs(labels) < LARGEST_EXACT)).all()
    ):
        return labels.astype(np.int64)  # pandas stores integers with gaps as floats
    return labels


def _named(arrays: Mapping[str, Any], names: Sequence[str], path: Path) -> np.ndarray | None:
    """The array with one of the names, or None."""
    found = [name for name in names if name in arrays]
    for other in found[1:]:
        if not np.array_equal(arrays[found[0]], arrays[other]):
            raise DataError(
                f"{path} contains '{found[0]}' and '{other}', which differ; keep the right one."
            )
    return arrays[found[0]] if found else None


def _float32(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise DataError(f"{path}: '{name}' must be real numbers, got {values.dtype}.")
    with np.errstate(over="ignore"):  # the validation finds infinite numbers
        return values.astype(np.float32)


def _are_probabilities(values: np.ndarray) -> bool:
    """Whether every row is non-negative with a sum of 1."""
    off = np.abs(values.sum(axis=1, dtype=np.float64) - 1)
    return bool(values.min() >= 0 and off.max() <= PROBABILITY_TOLERANCE)


def _checked_probabilities(values: np.ndarray, path: Path) -> np.ndarray:
    """The probabilities, divided by the sums of their rows if the metrics would refuse them."""
    sums = values.sum(axis=1, dtype=np.float64)
    off = np.abs(sums - 1)
    if not _are_probabilities(values):
        worst = int(off.argmax())
        raise DataError(
            f"{path} should contain probabilities, but row {worst} sums to {sums[worst]:.6g} "
            f"(smallest value "
            f"{values.min():.3g}); give --kind logits (in a study, kind: logits), or normalise the "
            f"rows."
        )
    return (
        values
        if off.max() <= SCORED_TOLERANCE[values.dtype.itemsize >= 8]
        else values / sums[:, None]
    )


def read_head_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read weight (K, d) and bias (K,) of a last layer from ``.npz``, ``.safetensors`` or ``.pt``,
    as float32.

    Raises DataError: the file is damaged, or one of them is missing.
    """
    arrays = load(path)
    if not {"weight", "bias"} <= set(arrays):
        raise DataError(
            f"{path} must contain 'weight' (K, d) and 'bias' (K,) of the last layer, it contains "
            f"{_content(arrays)}."
        )
    return _float32(arrays["weight"], "weight", path), _float32(arrays["bias"], "bias", path)
