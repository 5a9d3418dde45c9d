"""Kinds of jobs: the module that makes a result, the files of the result, and what a job needs.

A new kind is an entry here and a module of :mod:`calgrid.jobs` whose ``run`` makes the result, with
a method of :class:`calgrid.plan.plan.Plan` for its specification and a rule of the
workflow.
"""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calgrid.storage.inputs import NOTHING, Inputs, listing
from calgrid.storage.layout import MADE_FROM, MANIFEST, PROBE_TABLE
from calgrid.storage.publish import replace_files
from calgrid.storage.records import (
    CALIBRATE,
    HISTORY,
    MODEL,
    PREDICT,
    PREPARE,
    PROBE,
    TRAIN,
    Facts,
)
from calgrid.storage.schema import METRICS

if TYPE_CHECKING:
    from calgrid.storage.manifest import PlanFile

#: the longest time limit, in minutes, which most clusters allow
DAY = 24 * 60
#: threads that decode images
DECODE_THREADS = 8


@dataclass(frozen=True)
class Need:
    """What the first attempt at a job asks for: memory in MB, time in minutes, threads, GPUs."""

    memory: int
    minutes: int
    threads: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes
    ----------
    module : its function ``run`` takes a :class:`Call`.
    need, large : of a job with small and with large data.
    record : record of the result; '' of a stage of the study, which has a record for each version.
    files : further files of the result that are missed if they are deleted.
    read : file of the result that other jobs read, if that is not the record.
    rule : rule of the workflow, if its name is another.
    in_processes : whether its threads are processes of one thread each, because the number of
        threads changes the last bits of results.
    """

    module: str
    need: Need
    large: Need
    record: str = ""
    files: tuple[str, ...] = ()
    read: str = ""
    rule: str = ""
    in_processes: bool = False


# Memory is at least twice the largest peak of the kind of job in benchmarks/full_size.md, which
# includes 200 MB for Snakemake on the node. Peaks of large trainings, predictions and probes were
# not measured: they are the sizes of weights, images and activations.
KINDS: Mapping[str, Kind] = {
    "data": Kind(
        "calgrid.jobs.data",
        Need(1500, 120),
        Need(4000, 480, DECODE_THREADS),
        PREPARE,
        (MANIFEST,),
        read=MANIFEST,
        rule="prepare_data",
    ),
    "train": Kind(
        "calgrid.jobs.train",
        Need(4000, DAY // 2, gpus=1),
        Need(16_000, DAY, DECODE_THREADS, gpus=1),
        TRAIN,
        (HISTORY,),
        read=MODEL,
    ),
    "predict": Kind(
        "calgrid.jobs.predict",
        Need(3000, 240, gpus=1),
        Need(10_000, 480, DECODE_THREADS, gpus=1),
        PREDICT,
    ),
    "probe": Kind(
        "calgrid.jobs.probe",
        Need(3000, 120, gpus=1),
        Need(10_000, 240, DECODE_THREADS, gpus=1),
        PROBE,
        (PROBE_TABLE,),
    ),
    "import": Kind(
        "calgrid.jobs.import_logits",
        Need(2100, 30),
        Need(8000, 30),
        PREDICT,
        rule="import_external",
    ),
    "ensemble": Kind("calgrid.jobs.ensemble", Need(2100, 30), Need(13_000, 60), PREDICT),
    "calibrate": Kind(
        "calgrid.jobs.calibrate",
        Need(2000, 120),
        Need(13_000, DAY // 2, 2),
        CALIBRATE,
        (METRICS,),
        in_processes=True,
    ),
    # of at least ``plan.resources.MANY_RUNS`` runs, an aggregation is large
    "aggregate": Kind(
        "calgrid.jobs.aggregate", Need(1000, 60), Need(4000, 60, 4), in_processes=True
    ),
    "tables": Kind("calgrid.papers.tables", Need(1200, 30), Need(1200, 30)),
    "figures": Kind("calgrid.papers.figures", Need(1200, 30), Need(1200, 30)),
    "report": Kind("calgrid.papers.report", Need(1200, 30), Need(1200, 30)),
}


@dataclass(frozen=True)
class Call:
    """A call of a job, as its plan tells it.

    Attributes
    ----------
    spec : specification (:mod:`calgrid.storage.specs`); of a stage, the manifest of the study.
    out : folder of the result; of a stage, its record.
    reads : files of results above it, and of an import those of the user.
    given : files of the user and code, as planned.
    root : folder of the user's data.
    module : module that makes the result.
    """

    spec: Any
    out: Path
    reads: tuple[Path, ...] = ()
    given: Inputs = NOTHING
    root: Path = Path()
    threads: int = 1
    device: str = "auto"
    resume_every: float = 60.0
    module: str = ""

    @classmethod
    def planned(cls, plan: "PlanFile", kind: str, out: Path, **options: Any) -> "Call":
        """Call of a job or stage of a plan; ``options`` are those of the machine: threads, device,
        seconds between resume states.
        """
        is_stage = kind in MADE_FROM
        told = plan["inputs"][kind if is_stage else str(out)]
        given = Inputs(
            files=told["files"],
            code=plan["code"][told["code"]],
            sources=plan["sources"],
            root=told["root"],
            plugins=told["plugins"],
        )
        spec = plan["manifest"] if is_stage else plan["jobs"][str(out)]
        reads, root = tuple(map(Path, told["reads"])), Path(told["root"])
        return cls(spec, out, reads, given, root, module=told["module"], **options)

    def make(self) -> None:
        """Make the result, in this process."""
        importlib.import_module(self.module).run(self)


def write_part(call: Call, name: str, write: Callable[[Path, Any, Path], object]) -> None:
    """Write tables, figures or report of a study into its folder by ``write(study, manifest,
    file or folder)``.
    """
    study = call.out.parents[1]

    def produce(folder: Path) -> Facts:
        if not Path(name).suffix:
            (folder / name).mkdir()
        write(study, call.spec, folder / name)
        return {}

    read = listing(study, MADE_FROM[Path(name).stem])
    replace_files(call.out, [name], produce, call.given.of({study: read}))
