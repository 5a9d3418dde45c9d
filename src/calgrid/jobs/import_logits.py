"""Job ``import``: convert external logits to logits files of a run."""

import time
from pathlib import Path

from calgrid.logits.bank import BankRun, opened
from calgrid.logits.entry import read_external
from calgrid.logits.reading import read_head_arrays
from calgrid.storage import provenance
from calgrid.storage.arrays import write_head
from calgrid.storage.atomic import write_bytes
from calgrid.storage.logits import read_logits, write_logits
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import (
    EXTERNAL_CHECKPOINT,
    PREDICT,
    Facts,
    RunKey,
    head_file,
    logits_file,
    logits_files,
)
from calgrid.storage.specs import EXTERNAL_FILES, ExternalSpec


def run(call: Call) -> bool:
    """Read, check and publish the files of an external run; return False if the result already
    exists.

    Logits files contain float32; for probabilities, their logarithm. Ties may therefore break, and
    a value at the edge of a bin may change bins.

    The job reads the files in its specification, in the order of
    :data:`~calgrid.storage.specs.EXTERNAL_FILES`.

    Raises
    ------
    DataError : one is damaged, or val and test differ in their number of classes.
    """
    spec: ExternalSpec = call.spec
    external = spec["external"]
    if "bank" in external:
        return _take_from_bank(call)
    roles = [name for name in EXTERNAL_FILES if name in external]
    paths = dict(zip(roles, call.reads, strict=True))

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        val, test, classes = read_external(external, paths)
        # all runs of a data set have their rows in the same order, and share resamples
        for name, data in (("val", val.in_order()), ("test", test.in_order())):
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
        if "head" in paths:
            weight, bias = read_head_arrays(paths["head"])
            write_head(folder / head_file(EXTERNAL_CHECKPOINT), weight, bias, spec["fingerprint"])
        return provenance.job_record({"spec": dict(spec)}, begin, "numpy")

    return make_result(
        call,
        PREDICT,
        logits_files([EXTERNAL_CHECKPOINT]),
        produce,
        {},
        [head_file(EXTERNAL_CHECKPOINT)],
    )


def _take_from_bank(call: Call) -> bool:
    """Publish the logits of a run of a bank; its record has their origin."""
    spec: ExternalSpec = call.spec
    taken = spec["external"]["bank"]
    run = BankRun(RunKey(**spec["key"]), taken["folder"], taken["files"])

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        with opened(call.reads[0]) as bank:
            for name in run.files:
                write_bytes(folder / name, bank.read(run, name))
                data = read_logits(folder / name)
                data.metadata = {
                    **data.metadata,
                    **spec["key"],
                    "fingerprint": spec["fingerprint"],
                }
                write_logits(folder / name, data)
            facts = {"spec": dict(spec), "origin": dict(bank.origin)}
        return provenance.job_record(facts, begin, "numpy")

    return make_result(call, PREDICT, list(run.files), produce, {})
