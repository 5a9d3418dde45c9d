"""Stage ``import``: convert external logits to logits files of a run."""

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from calgrid.errors import DataError
from calgrid.files.bank import BankRun, opened
from calgrid.files.calarena import read_group
from calgrid.files.logits import read_any, read_head_arrays, share_rows
from calgrid.specs import EXTERNAL_FILES, EXTERNAL_READING, External, ExternalSpec
from calgrid.storage import provenance
from calgrid.storage.arrays import write_head
from calgrid.storage.atomic import write_bytes
from calgrid.storage.layout import (
    EXTERNAL_CHECKPOINT,
    RunKey,
    head_file,
    logits_file,
    logits_files,
)
from calgrid.storage.logits import Logits, read_logits, validate_logits, write_logits
from calgrid.storage.publish import make_result
from calgrid.storage.records import PREDICT, sha256_of


def import_run(spec: ExternalSpec, files: Sequence[Path], out: Path) -> bool:
    """Read, check and publish the files of an external run.

    Logits files contain float32; for probabilities, their logarithm. Ties may therefore break, and
    a value at the edge of a bin may change bins.

    ``files`` are those in the specification, in the order of :data:`~calgrid.specs.EXTERNAL_FILES`.
    Raises DataError: one is damaged, or val and test differ in their number of classes.
    """
    external = spec["external"]
    if "bank" in external:
        return _take_from_bank(spec, files[0], out)
    given = dict(zip((name for name in EXTERNAL_FILES if name in external), files, strict=True))

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        val, test, classes = _read(external, given)
        for name, data in (("val", val), ("test", test)):
            data.shift = data.severity = data.probabilities = None
            data.metadata = {
                **spec["key"],
                "split": name,
                "checkpoint": EXTERNAL_CHECKPOINT,
                "n_classes": test.logits.shape[1],
                "fingerprint": spec["fingerprint"],
                **({} if classes is None else {"classes": classes}),
            }
            write_logits(folder / logits_file(EXTERNAL_CHECKPOINT, name), data)
        if "head" in given:
            weight, bias = read_head_arrays(given["head"])
            write_head(folder / head_file(EXTERNAL_CHECKPOINT), weight, bias, spec["fingerprint"])
        return provenance.stage_record(
            {"spec": dict(spec), "fingerprint": spec["fingerprint"]}, begin, "numpy"
        )

    return make_result(
        out,
        PREDICT,
        spec["fingerprint"],
        logits_files([EXTERNAL_CHECKPOINT]),
        produce,
        inputs={str(number): sha256_of(path) for number, path in enumerate(files)},
        optional=[head_file(EXTERNAL_CHECKPOINT)],
    )


def _take_from_bank(spec: ExternalSpec, path: Path, out: Path) -> bool:
    """Publish the logits of a run of a bank; its record has their origin."""
    taken = spec["external"]["bank"]
    run = BankRun(RunKey(**spec["key"]), taken["folder"], taken["files"])

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        with opened(path) as bank:
            for name in run.files:
                write_bytes(folder / name, bank.read(run, name))
                data = read_logits(folder / name)
                data.metadata = {
                    **data.metadata,
                    **spec["key"],
                    "fingerprint": spec["fingerprint"],
                }
                write_logits(folder / name, data)
            facts = {
                "spec": dict(spec),
                "fingerprint": spec["fingerprint"],
                "origin": dict(bank.origin),
            }
        return provenance.stage_record(facts, begin, "numpy")

    inputs = dict(run.files)
    return make_result(out, PREDICT, spec["fingerprint"], list(run.files), produce, inputs=inputs)


def _read(
    external: External, given: Mapping[str, Path]
) -> tuple[Logits, Logits, Sequence[str] | None]:
    """Return the rows of val and test, checked, and the names of the classes, if known."""
    if "group" in external:
        return *read_group(given["test"], external["group"]), None
    how: dict[str, Any] = {
        name: value for name, value in external.items() if name in EXTERNAL_READING
    }
    test = read_any(given["test"], external["kind"], given.get("test_labels"), **how)
    classes = test.metadata.get("classes")
    if "val" in given:
        how["classes"] = classes
        val = read_any(given["val"], external["kind"], given.get("val_labels"), **how)
        validate_logits(val, str(given["val"]), n_classes=test.logits.shape[1])
        if share_rows(val, test):
            raise DataError(
                f"{given['val']} and {given['test']} share rows: calibrators would be scored on "
                "rows used for their fit; give other rows as test, or remove val, and a part of "
                "test (val_fraction) is taken for the fit."
            )
    else:
        val, test = split_rows(test, external["split_seed"], external["val_fraction"])
    if "val_rows" in external:
        val = first_rows(val, external["val_rows"], external["val_seed"])
    return val, test, classes


def split_rows(data: Logits, seed: int, val_fraction: float) -> tuple[Logits, Logits]:
    """Split rows at random into val and test, both in their original order."""
    count = len(data)
    n_val = round(count * val_fraction)
    if not 0 < n_val < count:
        raise DataError(
            f"{count} rows cannot be split with val_fraction {val_fraction}: one part would be "
            "empty."
        )
    order = np.random.default_rng(seed).permutation(count)
    return data.rows(np.sort(order[:n_val])), data.rows(np.sort(order[n_val:]))


def first_rows(data: Logits, rows: int, seed: int) -> Logits:
    """Return the first rows of a random permutation, in their original order; smaller sets are
    subsets of larger.
    """
    if rows > len(data):
        raise DataError(f"val_rows {rows} is more than the {len(data)} val rows; use fewer.")
    return data.rows(np.sort(np.random.default_rng(seed).permutation(len(data))[:rows]))
