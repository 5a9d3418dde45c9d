"""Fits of calibrators. Fits on val are cached in the folder of the run."""

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from calgrid import fingerprint
from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.errors import CalgridError
from calgrid.progress import log
from calgrid.specs import FittedCalibrator
from calgrid.storage.arrays import Head
from calgrid.storage.logits import Logits
from calgrid.storage.records import read_record, write_record

#: key of the loss and the traces in the record of a fitted calibrator
COURSE = "course"


@dataclass
class Fitted:
    """A calibrator fitted on val, and the cost of its fit."""

    calibrator: Calibrator
    cost: dict[str, Any]


def content_of(val: Logits, head: Head | None) -> str:
    """Digest of the data that calibrators are fitted on."""
    content = hashlib.sha256(np.ascontiguousarray(val.logits).tobytes() + val.label.astype(np.int64).tobytes())
    for array in (val.features, *(head or ())):
        if array is not None:
            content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def fit_on_val(
    entry: FittedCalibrator, seed: int, val: Logits, head: Head | None, content: str, folder: Path, trace: bool
) -> Fitted:
    """Load a fitted calibrator from the cache in ``folder``, or fit and cache it.

    Parameters
    ----------
    content : digest of the data (:func:`content_of`).
    trace : whether ``fit_history`` must contain the losses and traces of the fit; the record stores them.
    """
    identity = fingerprint.digest([entry["fingerprint"], seed, content])
    path = folder / f"{entry['name']}-seed{seed}-{identity}.safetensors"
    record = path.with_suffix(".json")
    if path.is_file():
        try:
            calibrator, cost = load_calibrator(path), read_record(record)
            course = cost.pop(COURSE, {})
            if course or not trace:
                calibrator.fit_history.update(course)
                return Fitted(calibrator, {**cost, "cached": True})
        except CalgridError as error:
            log(f"{error} The calibrator is fitted again.")
    calibrator = fit_anew(entry, seed, val, head, trace)
    cost = {"fit_seed": seed, "seconds": calibrator.fit_seconds}
    course = {name: value for name, value in calibrator.fit_history.items() if name == "loss" or "trace_" in name}
    write_record(record, {**cost, COURSE: course} if trace else cost)
    calibrator.save(path)
    return Fitted(calibrator, {**cost, "cached": False})


def fit_anew(entry: FittedCalibrator, seed: int, rows: Logits, head: Head | None, trace: bool = False) -> Calibrator:
    """Fit a calibrator, without the cache."""
    options = {**entry["options"], **({"trace": True} if trace else {})}
    return build_calibrator(entry["id"], seed=seed, **options).fit(rows.logits, rows.label, rows.features, head)
