"""``calgrid job``: entry point of the workflow's rules, by the plan of a study."""

import os
from collections.abc import Mapping
from pathlib import Path

from calgrid.cli.terminal import OF_TORCHRUN, Arguments
from calgrid.components import plugins
from calgrid.errors import StateError
from calgrid.storage.manifest import PlanFile
from calgrid.storage.publish import Call
from calgrid.storage.records import MADE_FROM, RunKey, read_record
from calgrid.threads import set_threads


def job(options: Arguments) -> None:
    """Make the result of a job, or files of the study.

    Raises
    ------
    StateError : the plan has no such job, or external logits have other rows than its data.
    """
    plan: PlanFile = read_record(options.plan, "plan")
    name = str(options.out)
    told = plan.get("inputs", {}).get(options.job if options.job in MADE_FROM else name)
    if told is None:
        raise StateError(
            f"The plan {options.plan} has no job for {name}: another call has changed the "
            "study since; run the same command again."
        )
    set_threads(1 if told["in_processes"] else options.cores)
    call = Call.planned(
        plan,
        options.job,
        options.out,
        threads=options.cores,
        device=options.device,
        resume_every=options.resume_every,
    )
    if call.plugins:
        plugins.use_copy(call.plugins)
    spec = call.spec
    if rows := plan["rows"].get(name):
        _check_rows(call.reads[0].parent, rows, RunKey(**spec["key"]))
    processes = 1 if options.job != "train" else spec["protocol"].get("gpus", 1)
    if processes > 1 and OF_TORCHRUN not in os.environ:
        from calgrid.cli.torchrun import start
        from calgrid.jobs import distributed

        distributed.check(spec, call.reads[0].parent, call.device)
        start(processes, max(call.threads // processes, 1))
    else:
        call.make()


def _check_rows(data: Path, rows: Mapping[str, str], key: RunKey) -> None:
    """Raise StateError if splits of the prepared data have other rows than the external logits to
    compare with; ``rows`` are the identities of their rows.
    """
    import numpy as np

    from calgrid.datasets import open_prepared
    from calgrid.storage.logits import identity_of_rows

    for split, expected in rows.items():
        labels = open_prepared(data).splits[split].labels
        if identity_of_rows(np.arange(len(labels)), labels) != expected:
            raise StateError(
                f"The bank or logits under 'external' have other {split} rows or labels than "
                f"{key.dataset} has here, so {key.path} could not be compared with them image by "
                "image; take those of the same split in the same order, or leave them out."
            )
