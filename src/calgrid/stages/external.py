"""Stage ``import``: logits made elsewhere become logits files of a run."""

import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.errors import DataError
from calgrid.specs import ExternalSpec
from calgrid.storage import provenance
from calgrid.storage.atomic import require_file
from calgrid.storage.head import write_head
from calgrid.storage.layout import EXTERNAL_CHECKPOINT, head_file, logits_file, logits_files
from calgrid.storage.logits import Logits, read_columns, read_metadata, read_table, validate_logits, write_logits
from calgrid.storage.records import PREDICT, sha256_of
from calgrid.storage.stage import run_stage

LABEL_NAMES = ("label", "labels", "y")
#: names of the numbers of a file of each kind
VALUE_NAMES = {"logits": ("logits",), "probabilities": ("probabilities", "probs")}
#: what a file may hold beside its labels and numbers
EXTRAS = ("index", "shift", "severity", "features", "distribution")
PROBABILITY_TOLERANCE = 1e-3
#: largest distance of a row's sum from 1 that the metrics take: of numbers of 64 bits, and of fewer
SCORED_TOLERANCE = {True: 1e-6, False: 1e-4}
#: both columns of two classes, of one number for class 1
BINARY = {"logits": "np.c_[0 * z, z]", "probabilities": "np.c_[1 - p, p]"}


def import_run(spec: ExternalSpec, files: Sequence[Path], out: Path) -> bool:
    """Read, check and publish the files of an external run.

    Logits files hold float32: of probabilities their logarithm is kept, so that ties may break, and a value on the
    border of two bins may change sides.

    Parameters
    ----------
    spec : ``key``, ``external`` (kind, split_seed and val_fraction where there is no val file) and ``fingerprint``.
    files : val (where there is one), test, and the last layer (where the specification names one).

    Raises
    ------
    DataError : a file is damaged, or val and test do not fit each other.
    """
    external = spec["external"]
    given, head = files, files[-1] if "head" in external else None
    files = files[:-1] if head is not None else files
    test_file = files[-1]

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        test = read_any(test_file, external["kind"])
        if len(files) > 1:
            val = read_any(files[0], external["kind"])
        else:
            val, test = split_rows(test, external["split_seed"], external["val_fraction"])
        validate_logits(val, str(files[0]), n_classes=test.logits.shape[1])
        if "val_rows" in external:
            val = first_rows(val, external["val_rows"], external["val_seed"])
        for name, data in (("val", val), ("test", test)):
            data.shift = data.severity = data.probabilities = None
            data.metadata = {
                **spec["key"],
                "split": name,
                "checkpoint": EXTERNAL_CHECKPOINT,
                "n_classes": test.logits.shape[1],
                "fingerprint": spec["fingerprint"],
            }
            write_logits(folder / logits_file(EXTERNAL_CHECKPOINT, name), data)
        if head is not None:
            weight, bias = read_head_arrays(head)
            write_head(folder / head_file(EXTERNAL_CHECKPOINT), weight, bias, spec["fingerprint"])
        facts = {"spec": dict(spec), "fingerprint": spec["fingerprint"]}
        return provenance.stage_record(facts, begin, "numpy")

    return run_stage(
        out,
        "predict",
        spec["fingerprint"],
        logits_files([EXTERNAL_CHECKPOINT]),
        produce,
        record=PREDICT,
        inputs={str(number): sha256_of(path) for number, path in enumerate(given) if path.is_file()},
        optional=[head_file(EXTERNAL_CHECKPOINT)],
    )


def read_any(path: Path, kind: str) -> Logits:
    """Read logits and labels from Parquet (our schema), ``.npz`` or ``.safetensors``.

    Parameters
    ----------
    kind : ``"logits"`` or ``"probabilities"``; stated, never guessed. Probabilities are returned as they are, beside
        their logarithm, the logits.

    Raises
    ------
    DataError : the file is missing, damaged, holds what is not of the kind (also logits that are probabilities in every
        row), rows without a label, or two of one index.
    """
    suffix = path.suffix.lower()
    metadata: dict[str, Any] = {}
    arrays: Mapping[str, Any]
    if suffix == ".parquet":
        table = read_table(path, "logits file", "write it again")
        names = (*LABEL_NAMES, *VALUE_NAMES["logits"], *EXTRAS)
        known = read_columns(table, names, path, exact=VALUE_NAMES["probabilities"])
        arrays, metadata = dict.fromkeys(table.column_names) | known, read_metadata(table)
    elif suffix in (".npz", ".safetensors"):
        arrays = _load_arrays(path)
    else:
        raise DataError(f"{path}: unknown file type '{suffix}'; use .parquet, .npz or .safetensors.")
    data = _from_arrays(arrays, kind, path)
    data.metadata = metadata
    if (data.label < 0).any():
        raise DataError(f"{path}: {int((data.label < 0).sum())} rows have no label (-1); they cannot be scored.")
    _check_index(data, path)
    return data


def row_keys(data: Logits) -> list[np.ndarray]:
    """What tells the rows of a file apart, in the order of their weight in a sort, the last first."""
    return [values for values in (data.index, data.severity, data.shift) if values is not None]


def _check_index(data: Logits, path: Path) -> None:
    order = np.lexsort(row_keys(data))
    twice = np.logical_and.reduce([values[order][1:] == values[order][:-1] for values in row_keys(data)])
    if twice.any():
        raise DataError(
            f"{path} has index {data.index[order][int(twice.argmax())]} more than once: rows are paired by it, so give "
            "each its own, or leave 'index' out."
        )


def predicted(data: Logits) -> np.ndarray:
    """Return the probabilities (N, K) that a file holds as they are, or else the softmax of its logits."""
    if data.probabilities is not None:
        return data.probabilities
    return build_calibrator("none").fit(data.logits, data.label).predict_proba(data.logits)


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    require_file(path)
    try:
        if path.suffix.lower() == ".safetensors":
            return load_file(path)
        if not zipfile.is_zipfile(path):  # numpy would speak of pickles
            raise ValueError("no .npz archive")
        with np.load(path, allow_pickle=False) as stream:
            names, members = stream.files, {name: stream[name] for name in stream.files}
    except Exception as error:  # damaged archives raise many kinds
        reason = str(error).split(". ")[0]
        raise DataError(f"The file {path} cannot be read ({reason}); write it again.") from None
    if twice := sorted(name for name in members if names.count(name) > 1):
        raise DataError(f"{path} has several members named '{twice[0]}': keep one.")
    return {name: value for name, value in members.items() if isinstance(value, np.ndarray)}


def _from_arrays(arrays: Mapping[str, Any], kind: str, path: Path) -> Logits:
    labels, values = _named(arrays, LABEL_NAMES, path), _named(arrays, VALUE_NAMES[kind], path)
    if values is None and kind == "probabilities":
        values = arrays.get("logits")  # what is stated counts; rows that are no probabilities are refused below
    if values is None:
        for other, names in VALUE_NAMES.items():
            if (found := next((name for name in names if name in arrays), None)) is not None:
                raise DataError(
                    f"{path} is stated to hold {kind}, but it holds '{found}': state --kind {other} (in a study, kind: "
                    f"{other}), or name the array '{VALUE_NAMES[kind][0]}'."
                )
    if labels is None or values is None:
        raise DataError(
            f"{path} must hold an array '{VALUE_NAMES[kind][0]}' (N, K) and an array 'label' (N,); it holds "
            f"{', '.join(sorted(arrays)) or 'nothing'}."
        )
    if values.ndim == 1 or values.shape[1:] == (1,):
        raise DataError(
            f"{path}: {kind} must have shape (N, K), one column a class, got {values.shape}; of two classes write "
            f"both: {BINARY[kind]}, made of what you have of class 1."
        )
    extras: dict[str, Any] = {name: arrays[name] for name in EXTRAS if name in arrays}
    for name in {"features", "distribution"} & set(extras):
        extras[name] = _float32(extras[name], name, path)
    logits = _float32(values, kind, path)
    data = Logits(**{"index": np.arange(labels.size), **extras}, label=labels, logits=logits)
    validate_logits(data, str(path))
    # only now: a cast could turn a wrong number into a valid one
    data.label, data.index = labels.astype(np.int32), data.index.astype(np.int32)
    if kind == "logits" and _are_probabilities(values):
        raise DataError(
            f"{path} is stated to hold logits, but every row is 0 or more and sums to 1, as probabilities are: state "
            "--kind probabilities (in a study, kind: probabilities); if they are logits, subtract 1 from all, which "
            "changes no softmax."
        )
    if kind == "probabilities":
        data.probabilities = _checked_probabilities(values, path)
        data.logits = logits_from_probabilities(data.probabilities).astype(np.float32)
    return data


def _named(arrays: Mapping[str, Any], names: Sequence[str], path: Path) -> np.ndarray | None:
    """The array of one of the names; None where there is none."""
    found = [name for name in names if name in arrays]
    for other in found[1:]:
        if not np.array_equal(arrays[found[0]], arrays[other]):
            raise DataError(f"{path} holds '{found[0]}' and '{other}', which differ: keep the right one.")
    return arrays[found[0]] if found else None


def _float32(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise DataError(f"{path}: '{name}' must be real numbers, got {values.dtype}.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which the validation finds
        return values.astype(np.float32)


def _are_probabilities(values: np.ndarray) -> bool:
    """Is every row 0 or more, with a sum of 1?"""
    off = np.abs(values.sum(axis=1, dtype=np.float64) - 1)
    return bool(values.min() >= 0 and off.max() <= PROBABILITY_TOLERANCE)


def _checked_probabilities(values: np.ndarray, path: Path) -> np.ndarray:
    """The values as they are if the metrics take them, else divided by the sums of their rows."""
    sums = values.sum(axis=1, dtype=np.float64)
    off = np.abs(sums - 1)
    if not _are_probabilities(values):
        worst = int(off.argmax())
        raise DataError(
            f"{path} is stated to hold probabilities, but row {worst} sums to {sums[worst]:.6g} (smallest value "
            f"{values.min():.3g}); state kind: logits, or normalise the rows."
        )
    return values if off.max() <= SCORED_TOLERANCE[values.dtype.itemsize >= 8] else values / sums[:, None]


def split_rows(data: Logits, seed: int, val_fraction: float) -> tuple[Logits, Logits]:
    """Split rows at random into val and test, both in their original order."""
    count = len(data)
    n_val = round(count * val_fraction)
    if not 0 < n_val < count:
        raise DataError(f"{count} rows cannot be split with val_fraction {val_fraction}: one side would be empty.")
    order = np.random.default_rng(seed).permutation(count)
    return data.rows(np.sort(order[:n_val])), data.rows(np.sort(order[n_val:]))


def first_rows(data: Logits, rows: int, seed: int) -> Logits:
    """Return the first rows of a random order, in their original order: smaller sets lie within larger ones."""
    if rows > len(data):
        raise DataError(f"val_rows {rows} is more than the {len(data)} rows that can fit calibrators: ask for fewer.")
    return data.rows(np.sort(np.random.default_rng(seed).permutation(len(data))[:rows]))


def read_head_arrays(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Read weight (K, d) and bias (K,) of a last layer from ``.npz`` or ``.safetensors``.

    Raises
    ------
    DataError : the file is damaged or does not hold both.
    """
    arrays = _load_arrays(path)
    if not {"weight", "bias"} <= set(arrays):
        held = ", ".join(sorted(arrays)) or "nothing"
        raise DataError(f"{path} must hold 'weight' (K, d) and 'bias' (K,) of the last layer; it holds {held}.")
    return _float32(arrays["weight"], "weight", path), _float32(arrays["bias"], "bias", path)
