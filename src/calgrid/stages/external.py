"""Stage ``import``: logits made elsewhere become logits files of a run."""

import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from calgrid.calibrators import logits_from_probabilities
from calgrid.errors import DataError
from calgrid.storage import provenance
from calgrid.storage.atomic import write_json
from calgrid.storage.head import FILE as HEAD_FILE
from calgrid.storage.head import write_head
from calgrid.storage.logits import Logits, read_logits, validate_logits, write_logits
from calgrid.storage.stage import run_stage

OUTPUTS = ("predict.json", "logits/last/val.parquet", "logits/last/test.parquet")
HEAD = f"logits/last/{HEAD_FILE}"
LABEL_NAMES = ("label", "labels", "y")
PROBABILITY_TOLERANCE = 1e-3


def import_run(spec: Mapping[str, Any], files: Sequence[Path], out: Path) -> bool:
    """Read, check and publish the files of an external run.

    Parameters
    ----------
    spec : ``key``, ``external`` (kind, split_seed and val_fraction where there is no val file) and ``fingerprint``.
    files : val (where there is one), test, and the last layer (where the specification names one).

    Raises
    ------
    DataError : a file is damaged, or val and test do not fit each other.
    """
    external = spec["external"]
    *files, head = files if "head" in external else [*files, None]
    test_file = files[-1]

    def produce(folder: Path) -> None:
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
            data.metadata = {
                **spec["key"],
                "split": name,
                "checkpoint": "last",
                "n_classes": test.logits.shape[1],
                "fingerprint": spec["fingerprint"],
            }
            write_logits(folder / f"logits/last/{name}.parquet", data)
        if head is not None:
            weight, bias = read_head_arrays(head)
            write_head(folder / HEAD, weight, bias, spec["fingerprint"])
        facts = {"spec": dict(spec), "fingerprint": spec["fingerprint"]}
        write_json(folder / "predict.json", provenance.stage_record(facts, begin, "numpy"))

    return run_stage(out, "predict", spec["fingerprint"], OUTPUTS, produce, [HEAD])


def read_any(path: Path, kind: str) -> Logits:
    """Read logits and labels from Parquet (our schema), ``.npz`` or ``.safetensors``.

    Parameters
    ----------
    kind : ``"logits"`` or ``"probabilities"`` (turned into their logarithm); stated, never guessed.
    """
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        data = read_logits(path)
    elif suffix in (".npz", ".safetensors"):
        data = _from_arrays(_load_arrays(path), path)
    else:
        raise DataError(f"{path}: unknown file type '{suffix}'; use .parquet, .npz or .safetensors.")
    if (data.label < 0).any():
        raise DataError(f"{path}: {int((data.label < 0).sum())} rows have no label (-1); they cannot be scored.")
    if kind == "probabilities":
        _check_probabilities(data.logits, path)
        data.logits = logits_from_probabilities(data.logits).astype(np.float32)
    data.shift = data.severity = None
    return data


def _load_arrays(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise DataError(f"The file {path} does not exist.")
    try:
        if path.suffix.lower() == ".safetensors":
            return load_file(path)
        if not zipfile.is_zipfile(path):  # numpy would speak of pickles
            raise ValueError("no .npz archive")
        with np.load(path, allow_pickle=False) as stream:
            return {name: stream[name] for name in stream.files}
    except Exception as error:  # damaged archives raise many kinds
        reason = str(error).split(". ")[0]
        raise DataError(f"The file {path} cannot be read ({reason}); write it again.") from None


def _from_arrays(arrays: Mapping[str, np.ndarray], path: Path) -> Logits:
    label_name = next((name for name in LABEL_NAMES if name in arrays), None)
    value_name = next((name for name in ("logits", "probabilities", "probs") if name in arrays), None)
    if label_name is None or value_name is None:
        raise DataError(
            f"{path} must hold an array 'logits' (N, K) and an array 'label' (N,); it holds "
            f"{', '.join(sorted(arrays)) or 'nothing'}."
        )
    labels = arrays[label_name]
    known = {name: _float32(arrays[name], name, path) for name in ("features", "distribution") if name in arrays}
    data = Logits(
        index=np.arange(labels.size, dtype=np.int32),
        label=labels,
        logits=_float32(arrays[value_name], value_name, path),
        **known,
    )
    validate_logits(data, str(path))
    data.label = labels.astype(np.int32)  # only now: a cast could turn a wrong label into a valid one
    return data


def _float32(values: np.ndarray, name: str, path: Path) -> np.ndarray:
    if not (np.issubdtype(values.dtype, np.floating) or np.issubdtype(values.dtype, np.integer)):
        raise DataError(f"{path}: '{name}' must be real numbers, got {values.dtype}.")
    with np.errstate(over="ignore"):  # what float32 cannot hold becomes infinite, which the validation finds
        return values.astype(np.float32)


def _check_probabilities(values: np.ndarray, path: Path) -> None:
    sums = values.sum(axis=1, dtype=np.float64)
    if values.min() < 0 or np.abs(sums - 1).max() > PROBABILITY_TOLERANCE:
        worst = int(np.abs(sums - 1).argmax())
        raise DataError(
            f"{path} is stated to hold probabilities, but row {worst} sums to {sums[worst]:.6g} (smallest value "
            f"{values.min():.3g}); state kind: logits, or normalise the rows."
        )


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
