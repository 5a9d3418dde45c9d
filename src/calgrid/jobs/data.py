"""Job ``data``: prepare a data set or shift family; machine and duration are kept out of the
manifest.
"""

import time
from pathlib import Path

from calgrid.datasets import prepare
from calgrid.storage import provenance
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import FILES, MANIFEST, PREPARE, Facts, Record


def run(call: Call) -> None:
    """Make the prepared images of a job."""
    spec = call.spec
    base = None if spec["base"] is None else Path(spec["base"])

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        prepare(
            spec["image_set"],
            folder,
            Path(call.root),
            base,
            spec["configured"],
            call.threads,
            spec.get("val_seed"),
        )
        facts = {"spec": spec, FILES: Record.read(folder, MANIFEST).files}
        return provenance.job_record(facts, begin, "numpy", "scikit-learn", "Pillow")

    make_result(call, PREPARE, [MANIFEST], produce, call.digests())
