"""Calls of jobs, as a plan tells them."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from calgrid.storage.inputs import NOTHING, Inputs, listing
from calgrid.storage.layout import MADE_FROM
from calgrid.storage.publish import replace_files
from calgrid.storage.records import Facts

if TYPE_CHECKING:
    from calgrid.storage.manifest import PlanFile


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
