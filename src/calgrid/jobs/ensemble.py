"""Job ``ensemble``: pool the predictions of trained runs that differ in their seed alone."""

import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._validation import check_logits
from calgrid.class_names import first_difference, is_other_order
from calgrid.errors import DataError
from calgrid.storage import provenance
from calgrid.storage.logits import Logits, count_groups, read_logits, write_logits
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import PREDICT, SPLITS, Facts, Record, logits_file, logits_files
from calgrid.storage.specs import EnsembleSpec
from calgrid.training.val_rows import FIT, rows_by_purpose

Array = NDArray[np.float64]
#: logits (N, K) of a member -> what is averaged over members
Prediction = Callable[[NDArray[Any]], Array]
#: columns that the members must share
SHARED = ("index", "label", "shift", "severity")


def run(call: Call) -> None:
    """Write the pooled logits of all splits and shift families.

    The job reads the records of the members' logits, in the order of the specification.
    Probabilities (``pool: probability``) and calibrated probabilities (``calibrated``) are averaged
    and written as ln p in float32; ``logit`` averages logits.

    Raises
    ------
    DataError : members differ in their rows, or in the order of their classes.
    """
    spec: EnsembleSpec = call.spec
    folders = [path.parent for path in call.reads]
    records = [Record.read(folder, PREDICT) for folder in folders]
    names = logits_files(spec["checkpoints"], spec["families"])
    read = {}
    for record in records:
        read[record.root] = {name: record.sha256(name) for name in names}

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        for record in records:
            for name in names:
                record.verified(name, "logits file")
        for checkpoint in spec["checkpoints"]:
            predictions = [
                _prediction(spec, place, checkpoint, member)
                for place, member in zip(folders, spec["members"], strict=True)
            ]
            for name in (*SPLITS, *spec["families"]):
                pooled = _pooled(spec, folders, predictions, checkpoint, name)
                write_logits(folder / logits_file(checkpoint, name), pooled)
        return provenance.job_record({"spec": dict(spec)}, begin, "numpy")

    make_result(call, PREDICT, names, produce, read)


def _prediction(spec: EnsembleSpec, folder: Path, checkpoint: str, member: Any) -> Prediction:
    """Return the averaged quantity of a member; a calibrator is fitted on its validation rows."""
    if spec["pool"] == "logit":
        return lambda logits: logits.astype(np.float64)
    entry = spec["calibrator"]
    if entry is None:
        return lambda logits: softmax(check_logits(logits))
    path = folder / logits_file(checkpoint, "val")
    val = read_logits(path, fingerprint=member["logits"]["val"])
    rows = val.rows(rows_by_purpose(val.label, spec["disjoint_validation"])[FIT])
    seed = entry["seeds"][0]
    fitted = build_calibrator(entry["id"], seed=seed, **entry["options"])
    return fitted.fit(rows.logits, rows.label).predict_proba


def _pooled(
    spec: EnsembleSpec,
    folders: Sequence[Path],
    predictions: Sequence[Prediction],
    checkpoint: str,
    name: str,
) -> Iterator[Logits]:
    """Yield the pooled row groups of a file."""
    file = logits_file(checkpoint, name)
    for group in range(count_groups(folders[0] / file)):
        parts = [
            read_logits(folder / file, group, member["logits"][name])
            for folder, member in zip(folders, spec["members"], strict=True)
        ]
        for folder, part in zip(folders, parts, strict=True):
            if not all(
                np.array_equal(getattr(part, column), getattr(parts[0], column))
                for column in SHARED
                if getattr(parts[0], column) is not None
            ):
                raise DataError(
                    f"The rows of {name} in {folder} are others than those in {folders[0]}; "
                    "members of an ensemble must share their images; run both predictions again."
                )
            names, first = (each.metadata.get("classes") for each in (part, parts[0]))
            if names and first and is_other_order(names, first):
                raise DataError(
                    f"{folder} has the classes of {folders[0]} in another order "
                    f"({first_difference(names, first)}); write the files of both in one order."
                )
        pooled = parts[0]
        pooled.logits = mean_prediction(
            [predict(part.logits) for predict, part in zip(predictions, parts, strict=True)],
            spec["pool"],
        )
        pooled.features = pooled.probabilities = None
        pooled.metadata = {
            **pooled.metadata,
            **spec["key"],
            "fingerprint": spec["fingerprint"],
        }
        yield pooled


def mean_prediction(predictions: Sequence[Array], pool: str) -> NDArray[np.float32]:
    """Return logits ``(N, K)`` of the mean of M predictions ``(N, K)``.

    Probabilities give ln of their mean, at least ln of the smallest normal float32; with ``pool:
    logit`` the predictions are logits.
    """
    mean = np.mean(predictions, axis=0)
    logits = mean if pool == "logit" else logits_from_probabilities(mean)
    return logits.astype(np.float32)
