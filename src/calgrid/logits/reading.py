"""Logits and labels from people's files; the kind of the numbers is stated, never guessed."""

import difflib
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from calgrid.calibrators import logits_from_probabilities
from calgrid.calibrators._probabilities import (
    are_probabilities,
    resemble_probabilities,
)
from calgrid.class_names import (
    as_names,
    first_difference,
    is_other_order,
    say_unnamed,
    shown_names,
    unlike,
)
from calgrid.errors import DataError, refuse, row_at, visible
from calgrid.logits.arrays import CLASSES, UNNAMED, Arrays, Columns, load
from calgrid.logits.formats import HEAD_FORMATS
from calgrid.logits.labels import class_numbers, numbers_of_values
from calgrid.metrics import Output, from_logits
from calgrid.metrics._inputs import TOLERANCE, TOLERANCE_LOW_PRECISION
from calgrid.progress import warn
from calgrid.storage.logits import NO_LABEL, Logits, validate_logits

# Accepted forms. A file has an array (N, K), or a column of lists, with one of VALUE_NAMES; or a
# table has a column per class. Columns of classes have a prefix of COLUMN_STARTS, followed by the
# name of the class; or one common prefix, followed by a number 0 to K-1 or the name of a known
# class. Other forms need an option, named in the message.
LABEL_NAMES = ("label", "labels", "y", "target", "targets")
VALUE_NAMES = {
    "logits": ("logits", "logit"),
    "probabilities": ("probabilities", "probs", "probability", "prob"),
}
COLUMN_STARTS = {"logits": "logit_", "probabilities": "probability_"}
#: beginning of the name of a column, up to a separator
BEGINNING = re.compile(r"[^_.:\- ]+[_.:\- ]")
#: optional arrays
EXTRAS = ("index", "shift", "severity", "features", "distribution")
#: float32 rounds smaller logits by less than 4e-5; rows with a larger maximum are shifted to 0
LARGEST_UNSHIFTED = 1000.0
#: float32 keeps larger logits to 1/64, and a probability moves by up to 0.004
COARSE = 2**17


def read_any(
    path: Path,
    kind: str | None,
    labels: Path | None = None,
    *,
    values_key: str | None = None,
    label_key: str | None = None,
    classes: Sequence[str] | None = None,
    binary: bool = False,
    labelled: bool = True,
    exact: bool = False,
) -> Logits:
    """Read logits and labels from ``.npz``, ``.pt``, ``.parquet`` or ``.csv``.

    Parameters
    ----------
    kind : ``"logits"`` or ``"probabilities"``. Probabilities are returned unchanged, and their
        logarithm as logits. None: logits, but probabilities of a file that ``calgrid calibrate``
        has written, whose logits are their rounded logarithms, and of a table whose columns
        of classes all begin with ``probability_``.
    labels : file of the labels, if not ``path``; rows are paired by ``index`` if both files have
        it, else in their order.
    values_key : name of the array or column of logits or probabilities, or prefix of such columns.
    label_key : name of the array or column of labels.
    classes : names of the classes, in the order of the columns; labels may be such names.
    binary : whether the numbers are one column, for class 1 of two.
    labelled : if False, labels may be absent; they are then all -1.
    exact : whether a table must have no columns of further classes than ``classes``.

    Names of the classes are in the metadata, key ``classes``, if a file or the caller knows them.

    Raises
    ------
    DataError : the file is missing or damaged, its numbers are not of the kind (also logits
        that are probabilities in every row), rows have no label, an index is repeated, the file of
        the labels has other indices, or with ``exact``, a column has the prefix of the classes and
        names none, or classes are in another order.
    """
    arrays = load(path)
    label_names = (label_key,) if label_key else LABEL_NAMES
    kind = kind or _stated_kind(arrays)
    given = classes
    classes = _known_classes(arrays, label_names, given, path, exact)
    is_named = classes is not given
    of_others = exact and given is not None
    is_told = of_others or classes is None
    if labels is None:
        label_values = _array_named(arrays, label_names, path)
    else:
        of_labels = load(labels)
        label_values = _labels_of_file(of_labels, labels, label_names, arrays, path)
        classes = _known_classes(of_labels, label_names, classes, labels, exact)
    told = classes if is_told else None
    values = _values(arrays, kind, values_key, path)
    if values is None and isinstance(arrays, Columns) and not binary:
        others = {*label_names, *EXTRAS, *VALUE_NAMES["logits"], *VALUE_NAMES["probabilities"]}
        names = [name for name in arrays if name not in others]
        found, named = _class_columns(names, values_key, kind, classes)
        if named is not None:
            is_named = True
            if exact or given is None:
                _check_further_columns(arrays, names, found, named)
            if label_values is not None:
                label_values = numbers_of_values(label_values, named, path)
            classes = named
        values = arrays.stacked(found) if found else None
    if values is None:
        _refuse_form(arrays, kind, values_key, path, classes, binary)
    if label_values is None:
        if labelled or label_key:
            raise DataError(_what_is_missing(arrays, kind, path, None) + ".")
        label_values = np.full(values.shape[:1], NO_LABEL)
    data = from_arrays(arrays, values, label_values, kind, path, classes, binary)
    if binary and values_key:
        unnamed = ("false", "true") if label_values.dtype.kind == "b" else ("0", "1")
        _check_class_of_column(values_key, data.metadata.get("classes", unnamed), path)
    unlabelled = int((data.label < 0).sum())
    if unlabelled and (labelled or unlabelled < len(data)):
        raise DataError(
            f"{path}: {unlabelled} rows have no label (-1), so they cannot be "
            "scored; if -1 is a class, number the classes from 0."
        )
    _refuse_repeated_rows(data, path)
    if told and not (is_named or binary):
        say_unnamed("columns", path, "the other file" if of_others else labels, told)
    return data


def _stated_kind(arrays: Arrays) -> str:
    """Kind of a file written by ``calgrid calibrate``, or of a table whose columns begin with
    ``probability_``; else logits.
    """
    is_calibrated = "calibrator" in arrays.metadata and "probabilities" in arrays
    begun = {}
    for kind, start in COLUMN_STARTS.items():
        begun[kind] = [name for name in arrays if name.startswith(start)]
    has_logits = begun["logits"] or any(name in arrays for name in VALUE_NAMES["logits"])
    is_stated = len(begun["probabilities"]) > 1 and not has_logits
    return "probabilities" if is_calibrated or is_stated else "logits"


def _check_class_of_column(column: str, classes: Sequence[str], path: Path) -> None:
    """Raise DataError if the one column of two classes ends with the name of class 0. A number may
    be the column's own: it causes a warning, and counts as no name if it stands alone.
    """
    either = "|".join(map(re.escape, classes))
    # leftmost is longest: p_no_cancer ends with no_cancer, not with cancer
    end = re.search(rf"(?:^|[_.:\- ])({either})$", column, re.IGNORECASE)
    if end is None or end[1].lower() != classes[0].lower() or column.isdecimal():
        return
    if end[1].isdecimal():
        warn(
            f"{path}: the one column '{visible(column)}' is taken for class {classes[1]}; "
            f"if it is that of class {classes[0]}, exchange the labels."
        )
        return
    turned = visible(",".join(classes[::-1]))
    raise DataError(
        f"{path}: the column '{visible(column)}' has the name of class 0, but with --binary it "
        f"is for class 1 of {shown_names(classes)}; give --classes {turned} (in a study, "
        "classes), or rename the column."
    )


def _known_classes(
    arrays: Arrays,
    label_names: Sequence[str],
    classes: Sequence[str] | None,
    path: Path,
    exact: bool,
) -> Sequence[str] | None:
    """Names of the classes, given or from the file; DataError if both differ.

    The order of a categorical column of labels yields to that of ``--classes`` (not ``exact``), as
    its labels are text.
    """
    written = as_names(arrays.metadata.get(CLASSES))
    if written is None and isinstance(arrays, Columns):
        written = arrays.classes_of_numbers(label_names)
        if written is None and (exact or not classes):
            written = arrays.ordered_categories(label_names)
    if written is None:
        return classes
    if classes and is_other_order(written, classes):
        raise DataError(
            f"{path} has the classes in another order ({first_difference(written, classes)}); "
            f"write its columns and labels in the order {shown_names(classes)}, or, if its own is "
            "right, name that with --classes (in a study, classes)."
        )
    if classes and list(classes) != written:
        raise DataError(
            f"{path} has the classes {shown_names(written)}, not {shown_names(classes)}; use the "
            f"same model{unlike(written, classes)}."
        )
    return written


def row_keys(data: Logits) -> list[np.ndarray]:
    """Columns that identify the rows of a file, in the order of ``numpy.lexsort`` (the primary key
    last).
    """
    return [values for values in (data.index, data.severity, data.shift) if values is not None]


def share_rows(data: Logits, other: Logits) -> bool:
    """Whether a tenth of the rows of the smaller file, or more, are rows of the other, by their
    numbers and labels.

    Numbers that a file repeats are left out: rounding can make them equal. By chance the files then
    share about half as many rows as both repeat, so up to a half of the rows, more must be shared.
    """
    rows = [_single_rows(data), _single_rows(other)]
    repeated = len(data) + len(other) - sum(map(len, rows))
    fewest = min(map(len, rows))
    return fewest > 0 and len(rows[0] & rows[1]) >= min(max(fewest / 10, repeated), fewest / 2)


def _single_rows(data: Logits) -> set[int]:
    """Hashes of the rows that occur once."""
    rows = zip(np.ascontiguousarray(data.logits), data.label.tolist(), strict=True)
    counts = Counter(hash((row.tobytes(), label)) for row, label in rows)
    return {one for one, count in counts.items() if count == 1}


def predicted(data: Logits) -> Output:
    """Return the probabilities (N, K) of a file unchanged, or the softmax of its logits."""
    return from_logits(data.logits) if data.probabilities is None else Output(data.probabilities)


def read_head_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read weight (K, d) and bias (K,) of a last layer from ``.npz``, ``.pt`` or ``.safetensors``,
    as float32.

    Raises
    ------
    DataError : the file is damaged, or one of them is missing.
    """
    arrays = load(path, HEAD_FORMATS)
    if "weight" not in arrays or "bias" not in arrays:
        raise DataError(
            f"{path} must contain 'weight' (K, d) and 'bias' (K,) of the last layer, it contains "
            f"{_content(arrays)}."
        )
    return _float32(arrays["weight"], "weight", path), _float32(arrays["bias"], "bias", path)


# arrays by name
# --------------------------------------------------------------------------------------------------


def _array_named(arrays: Arrays, names: Sequence[str], path: Path) -> np.ndarray | None:
    """The array with one of the names, or None; DataError if two differ."""
    present = [name for name in names if name in arrays]
    if not present:
        return None
    first, *others = present
    for other in others:
        if not np.array_equal(arrays[first], arrays[other]):
            raise DataError(
                f"{path} contains '{first}' and '{other}', which differ; keep the right one."
            )
    return arrays[first]


def _values(arrays: Arrays, kind: str, key: str | None, path: Path) -> np.ndarray | None:
    """The array of logits or probabilities, or None."""
    if key is not None:
        return arrays.get(key)
    values = _array_named(arrays, (UNNAMED, *VALUE_NAMES[kind]), path)
    if values is None and kind == "probabilities":  # the stated kind counts, not the name
        return arrays.get("logits")
    return values


def _refuse_form(
    arrays: Arrays,
    kind: str,
    key: str | None,
    path: Path,
    classes: Sequence[str] | None,
    binary: bool,
) -> NoReturn:
    """Raise DataError for a file without numbers of an accepted form: wrong kind, a class without a
    column, or an option is needed.
    """
    for other, names in VALUE_NAMES.items():
        start = COLUMN_STARTS[other]
        found = [name for name in arrays if name in names or name.startswith(start)]
        if other != kind and found and key is None:
            raise DataError(
                f"{path} should contain {kind}, but it contains '{visible(found[0])}'; give --kind "
                f"{other} (in a study, kind: {other}), or rename it to '{VALUE_NAMES[kind][0]}'."
            )
    pairs = itertools.product(arrays, classes or [])
    prefixes = Counter(name.removesuffix(end) for name, end in pairs if name.endswith(end))
    for prefix, count in prefixes.most_common(1):
        absent = [name for name in classes or [] if prefix + name not in arrays]
        if count > 1 and absent:
            raise DataError(
                f"{path} has no column for the classes {shown_names(absent)}, it contains "
                f"{_content(arrays)}."
            )
    hint = "; --binary needs --values-key." if binary else _key_hint(arrays, key)
    raise DataError(_what_is_missing(arrays, kind, path, classes) + hint)


def _labels_of_file(
    arrays: Arrays, path: Path, names: Sequence[str], scores: Arrays, scores_path: Path
) -> np.ndarray:
    """The labels of a file of their own, for the rows of the file of the scores."""
    values = arrays[UNNAMED] if UNNAMED in arrays else _array_named(arrays, names, path)
    if values is None:
        raise DataError(
            f"{path} must contain labels named '{names[0]}', it contains {_content(arrays)}; give "
            "their name with --label-key (in a study, label_key)."
        )
    if "index" not in arrays or "index" not in scores:
        for file, numbered, other in ((arrays, path, scores_path), (scores, scores_path, path)):
            index = file.get("index")
            if index is not None and not np.array_equal(index, np.arange(len(index))):
                warn(
                    f"{numbered} has an 'index', but {other} has none: rows are paired in "
                    "their order."
                )
        return values
    return _in_order_of(scores["index"], scores_path, arrays["index"], values, path)


def _in_order_of(
    wanted: np.ndarray, wanted_path: Path, index: np.ndarray, values: np.ndarray, path: Path
) -> np.ndarray:
    """Values with an index (N,) of their own, in the order of a wanted index.

    Raises
    ------
    DataError : an index of the values is repeated, or the two files have different ones.
    """
    if np.array_equal(index, wanted):
        return values
    if index.shape != values.shape[:1]:
        raise DataError(
            f"{path}: 'index' has the shape {index.shape} for {len(values)} labels; give one "
            "number per row, or remove 'index'."
        )
    known, first, counts = np.unique(index, return_index=True, return_counts=True)
    if (counts > 1).any():
        raise DataError(
            f"{path} has index {known[counts > 1][0]} more than once, but its labels are paired "
            "with rows by index; make it unique, or remove 'index'."
        )
    differing = np.setxor1d(known, wanted)
    if differing.size:
        owner = path if differing[0] in known else wanted_path
        raise DataError(
            f"{path} has labels for other rows than {wanted_path}: index {differing[0]} is in "
            f"{owner} alone; give the labels of these rows, or remove 'index' if both files have "
            "the same order."
        )
    return values[first[np.searchsorted(known, wanted)]]


def _content(arrays: Arrays) -> str:
    return visible(", ".join(sorted(arrays))) or "nothing"


def _what_is_missing(arrays: Arrays, kind: str, path: Path, classes: Sequence[str] | None) -> str:
    """Begin of the sentence for a file of no accepted form, with the options to give."""
    if UNNAMED in arrays:
        return (
            f"{path} contains one array without labels; give them with --labels (in a study, "
            "test_labels)"
        )
    of = f" ({shown_names(classes)})" if classes else ""
    return (
        f"{path} must contain an array '{VALUE_NAMES[kind][0]}' (N, K), or columns "
        f"'{COLUMN_STARTS[kind]}...' with a class each{of}, and an array 'label' (N,), it contains "
        f"{_content(arrays)}; give their names with --values-key and --label-key (in a study, "
        "values_key and label_key), or the classes in --classes"
    )


def _key_hint(arrays: Arrays, key: str | None) -> str:
    """End of a message: the prefixes of several columns, or the name next to a wrong key."""
    starts = [match[0] for name in arrays if (match := BEGINNING.match(name))]
    shared = sorted({start for start in starts if starts.count(start) > 1})
    if key is not None:
        near = difflib.get_close_matches(key, [*arrays, *shared], n=1)
        return f"; did you mean --values-key {visible(near[0])}?" if near else "."
    if isinstance(arrays, Columns) and shared:
        options = " or ".join(f"--values-key {visible(start)}" for start in shared)
        return f"; {options} takes the columns that begin with it."
    if isinstance(arrays, Columns) and (columns := arrays.floating(list(arrays))):
        return f"; if each column of floats is a class, --classes {visible(','.join(columns))}."
    return "."


# one column per class
# --------------------------------------------------------------------------------------------------


def _class_columns(
    names: Sequence[str], key: str | None, kind: str, classes: Sequence[str] | None
) -> tuple[list[str], Sequence[str] | None]:
    """Find the columns of a table with one class each, in the order of the classes, and the classes
    in their names, if any; no columns if none or several forms fit.

    Parameters
    ----------
    names : columns that are no labels. key : beginning of the names of columns, if given.
    kind : of the numbers. classes : names of the classes, in order, if known.
    """
    start = key or COLUMN_STARTS[kind]
    begun = [name for name in names if name.startswith(start)]
    candidates = begun if key else names
    if classes:
        known, fitting = {*candidates}, []
        for name in candidates:
            prefix = name.removesuffix(classes[0])
            is_first = name.endswith(classes[0])
            if is_first and known.issuperset(prefix + each for each in classes):
                fitting.append(prefix)
        if start in fitting or len(fitting) == 1:
            prefix = start if start in fitting else fitting[0]
            return [prefix + name for name in classes], classes
    numbered = _numbered_columns(begun).get(start)
    if numbered:
        return numbered, None
    if len(begun) > 1 and not classes:
        return begun, [name.removeprefix(start) for name in begun]
    groups = list(_numbered_columns(candidates).values())
    return (groups[0] if len(groups) == 1 else []), None


def _check_further_columns(
    columns: Columns, names: Sequence[str], found: Sequence[str], classes: Sequence[str]
) -> None:
    """Raise DataError for further floating-point columns with the common prefix of all classes;
    warn of further ones if there is no common prefix.
    """
    prefix = found[0].removesuffix(classes[0])
    others = [name for name in names if name not in found and name.startswith(prefix)]
    further = columns.floating(others)
    if not further:
        return
    beside = (
        f"{columns.path} has the columns {shown_names(further)} beside those of the classes "
        f"{shown_names(classes)}"
    )
    if prefix:
        raise DataError(
            f"{beside}; use the same model, or, if they are no classes, name the classes with "
            "--classes (in a study, classes)."
        )
    warn(f"{beside}; they are left out. If they are classes, use the same model.")


def _numbered_columns(names: Sequence[str]) -> dict[str, list[str]]:
    """Prefix -> its columns numbered 0 to K-1 (K > 1), in this order."""
    groups: dict[str, dict[int, str]] = defaultdict(dict)
    for name in names:
        if match := re.fullmatch(r"(.*?)(\d+)", name):
            groups[match[1]][int(match[2])] = name
    complete = {}
    for start, group in groups.items():
        if len(group) > 1 and max(group) == len(group) - 1:
            complete[start] = [group[number] for number in sorted(group)]
    return complete


# from arrays to logits
# --------------------------------------------------------------------------------------------------


def from_arrays(
    arrays: Arrays,
    values: np.ndarray,
    labels: np.ndarray,
    kind: str,
    path: Path,
    classes: Sequence[str] | None,
    binary: bool,
) -> Logits:
    """Return checked values and labels of a file, with its other arrays.

    Parameters
    ----------
    arrays : further arrays; ones named in ``EXTRAS`` are kept.
    values : logits or probabilities ``(N, K)``, or with ``binary`` ``(N,)``. labels : ``(N,)``.
    path : file, for messages.
    Other parameters and errors: see :func:`read_any`.
    """
    _float32(values, kind, path)  # raises DataError if they are not numbers
    _check_width(values, labels, kind, path, binary)
    rows: dict[str, Any] = {"index": np.arange(len(labels))}
    for name in EXTRAS:
        if name in arrays:
            matrix = name in ("features", "distribution")
            rows[name] = _float32(arrays[name], name, path) if matrix else arrays[name]
    if binary:
        values = values.reshape(-1)
        others = 1 - values if kind == "probabilities" else np.zeros_like(values)
        values = np.column_stack([others, values])
    labels, classes = class_numbers(labels, values.shape[1:], classes, path)
    logits = _float32(values, kind, path)
    data = Logits(**rows, label=labels, logits=logits)
    validate_logits(data, str(path))
    # after the validation: a cast could turn a wrong number into a valid one
    data.label, data.index = labels.astype(np.int32), data.index.astype(np.int32)
    if kind == "logits" and not binary:  # a single column has no row maximum
        data.logits = _without_offsets(values, logits, path)
    names = {"classes": list(classes)} if classes else {}
    data.metadata = {**arrays.metadata, **names}
    if kind == "logits" and resemble_probabilities(values):
        raise DataError(
            f"{path} should contain logits, but every row is non-negative and sums to 1 like "
            "probabilities, or to about 1 or 100; give --kind probabilities (in a study, kind: "
            "probabilities; divide each row by its sum if it is not 1), or, if they are logits, "
            "subtract 1 from all, which does not change the softmax."
        )
    if kind == "probabilities":
        data.probabilities = _normalised(values, path)
        data.logits = logits_from_probabilities(data.probabilities).astype(np.float32)
    return data


def _check_width(
    values: np.ndarray, labels: np.ndarray, kind: str, path: Path, binary: bool
) -> None:
    """Raise DataError unless there is one column for two classes, or one column per class."""
    one_column = values.ndim == 1 or values.shape[1:] == (1,)
    refuse(
        (
            binary and not one_column,
            f"{path}: --binary needs one column, for class 1, but {kind} have shape "
            f"{values.shape}.",
        ),
        (
            one_column and not binary and labels.ndim == 2 and labels.shape[1] > 1,
            f"{path}: {kind} have shape {values.shape} and labels {labels.shape}, they seem to be "
            f"swapped; give {kind} one column per class, and labels one number per row.",
        ),
        (
            one_column and not binary,
            f"{path}: {kind} must have shape (N, K), one column per class, got {values.shape}; if "
            "they are for class 1 of two classes, give --binary (in a study, binary: true).",
        ),
        error=DataError,
    )


def _float32(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if values.dtype.kind not in "fiu":
        raise DataError(f"{path}: '{name}' must be real numbers, got {values.dtype}; convert them.")
    with np.errstate(over="ignore"):  # the validation finds infinite numbers
        return values.astype(np.float32, copy=False)


def _without_offsets(values: np.ndarray, logits: np.ndarray, path: Path) -> np.ndarray:
    """Logits (N, K) in float32; rows of ``values`` that would lose differences are first shifted to
    the maximum 0, which does not change the softmax. Warns if ``values`` have already lost
    differences.
    """
    is_exact = values.dtype in (np.float16, np.float32)
    largest = np.abs(logits.max(axis=1))
    if is_exact and largest.max() >= COARSE:
        warn(
            f"{path} has float32 logits of magnitude {largest.max():.2g}, which have lost "
            f"differences below {np.spacing(largest.max()):.2g}; subtract the largest logit of "
            "each row before they become float32."
        )
    far = largest > LARGEST_UNSHIFTED
    if is_exact or not far.any():
        return logits
    rows = values[far].astype(np.float64)
    shifted = logits.copy()
    with np.errstate(over="ignore"):
        shifted[far] = rows - rows.max(axis=1, keepdims=True)
    return shifted


def _normalised(values: np.ndarray, path: Path) -> np.ndarray:
    """The probabilities, divided by the sums of their rows if the metrics would refuse them."""
    sums = values.sum(axis=1, dtype=np.float64)
    off = np.abs(sums - 1)
    if not are_probabilities(values):
        smallest = values.min(axis=1)
        worst, mend = int(off.argmax()), "normalise the rows"
        if np.median(off) > TOLERANCE_LOW_PRECISION:
            mend = f"give --kind logits (in a study, kind: logits), or {mend}"
        elif smallest.min() < 0:
            worst, mend = int(smallest.argmin()), "correct its negative values"
        if resemble_probabilities(values):
            mend = "divide each row by its sum"
        raise DataError(
            f"{path} should contain probabilities, but {row_at(worst)} sums to {sums[worst]:.6g} "
            f"(smallest value {smallest[worst]:.3g}); {mend}."
        )
    if off.max() <= (TOLERANCE if values.dtype.itemsize >= 8 else TOLERANCE_LOW_PRECISION):
        return values
    return values / sums[:, None]


def _refuse_repeated_rows(data: Logits, path: Path) -> None:
    keys = row_keys(data)
    order = np.lexsort(keys)
    same_as_next = np.logical_and.reduce([key[order][1:] == key[order][:-1] for key in keys])
    if same_as_next.any():
        raise DataError(
            f"{path} has index {data.index[order][int(same_as_next.argmax())]} more than once, but "
            "rows are paired by index; make it unique, or remove 'index'."
        )
