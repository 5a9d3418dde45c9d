"""``calgrid job``: what the rules of the workflow call, from the plan of a study."""

import argparse
import importlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from calgrid.cli.ends import OF_TORCHRUN
from calgrid.components import plugins
from calgrid.errors import StateError
from calgrid.storage import specs
from calgrid.storage.inputs import Inputs
from calgrid.storage.kinds import KINDS, Call
from calgrid.storage.layout import MADE_FROM, RunKey
from calgrid.storage.manifest import Manifest
from calgrid.storage.records import read_record
from calgrid.threads import set_threads


def job(options: argparse.Namespace) -> None:
    """Make the result of a job, or files of the study.

    Raises
    ------
    StateError : the plan has no such job, or a bank has other rows than its data.
    """
    set_threads(1 if KINDS[options.job].in_processes else options.cores)
    plan = read_record(options.plan, "plan")
    spec: Any
    if options.job in MADE_FROM:
        name = options.job
        spec = specs.checked(plan.get("manifest"), Manifest, f"The plan {options.plan}")
    else:
        name = str(options.out)
        spec = plan["jobs"].get(name)
        if spec is None:
            raise StateError(
                f"The plan {options.plan} has no job for {name}: another call has changed the "
                "study since; run the same command again."
            )
    told = plan["inputs"][name]
    if told["plugins"]:
        plugins.use_copy(told["plugins"])
    given = Inputs(
        files=told["files"],
        code=plan["code"][told["code"]],
        sources=plan["sources"],
        root=told["root"],
        plugins=told["plugins"],
    )
    call = Call(
        spec,
        options.out,
        tuple(map(Path, told["reads"])),
        given,
        Path(told["root"]),
        options.cores,
        options.device,
        options.resume_every,
    )
    if rows := plan["rows"].get(name):
        _check_rows(call.reads[0].parent, rows, RunKey(**spec["key"]))
    processes = 1 if options.job != "train" else spec["protocol"].get("gpus", 1)
    if processes > 1 and OF_TORCHRUN not in os.environ:
        from calgrid.cli.torchrun import start
        from calgrid.jobs import distributed

        distributed.check(spec, call.reads[0].parent, call.device)
        start(processes, max(call.threads // processes, 1))
    else:
        importlib.import_module(told["module"]).run(call)


def _check_rows(data: Path, rows: Mapping[str, str], key: RunKey) -> None:
    """Raise StateError if splits of the prepared data have other rows than the runs of a bank with
    which a run is to be compared; ``rows`` are the identities of theirs.
    """
    import numpy as np

    from calgrid.datasets import open_prepared
    from calgrid.storage.logits import identity_of_rows

    for split, expected in rows.items():
        labels = open_prepared(data).splits[split].labels
        if identity_of_rows(np.arange(len(labels)), labels) != expected:
            raise StateError(
                f"The bank has other {split} images than {key.dataset} has here, so {key.path} "
                "could not be compared with it image by image; take a bank of the same split, or "
                "leave it out."
            )
