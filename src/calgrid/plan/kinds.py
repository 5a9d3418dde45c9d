"""Kinds of jobs: module, files of the result, and requested resources.

A kind is declared where its jobs are planned, with :func:`kind` at a method of
:class:`calgrid.plan.plan.Plan`. The rest of planning and the rules read it from :data:`KINDS`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from calgrid.storage.records import RUN_PATH

#: the longest time limit, in minutes, which most clusters allow
DAY = 24 * 60
#: threads that decode images
DECODE_THREADS = 8
Planner = TypeVar("Planner", bound=Callable[..., Any])


@dataclass(frozen=True)
class Need:
    """Resources of the first attempt at a job: memory in MB, time in minutes, threads, GPUs."""

    memory: int
    minutes: int
    threads: int = 1
    gpus: int = 0


@dataclass(frozen=True)
class Kind:
    """A kind of job.

    Attributes
    ----------
    need, large : of a job with small and with large data.
    module : its function ``run`` takes a :class:`calgrid.storage.publish.Call`; by default the
        module of :mod:`calgrid.jobs` with the name of the kind.
    record : record of the result, by default the name of the kind with ``.json``; '' of a stage of
        the study, which has a record for each version.
    files : further files of the result that cause a new job if deleted, by their names in the rule.
    removable : files and folders (``logits/``) that may be deleted without a new job.
    read : file of the result read by downstream jobs, if not the record.
    place : folder of the result below the folder of all results, without its fingerprint; by
        default named as the record, in the folder of the run.
    log : its log, likewise; by default named by the kind and the run.
    rule : rule of the workflow, if its name is another.
    environment : conda environment of the rule, a file of ``envs``; required unless it is a stage
        of the study.
    in_processes : whether its threads are processes of one thread each, because the number of
        threads changes the last bits of results.
    """

    name: str
    need: Need
    large: Need
    module: str
    record: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    removable: Mapping[str, str] = field(default_factory=dict)
    read: str = ""
    place: str = ""
    log: str = ""
    rule: str = ""
    environment: str = ""
    in_processes: bool = False


KINDS: dict[str, Kind] = {}


def kind(
    name: str, need: Need, large: Need | None = None, **facts: Any
) -> Callable[[Planner], Planner]:
    """Declare a kind of job, which the decorated method plans; ``facts``: further attributes of
    :class:`Kind`.

    Raises
    ------
    ModuleNotFoundError : there is no such module.
    ValueError : the name is not made of letters and digits, or a kind with a record has no
        environment.
    """
    module = facts.get("module", f"calgrid.jobs.{name}")
    if find_spec(module) is None:
        raise ModuleNotFoundError(f"@kind('{name}'): there is no module '{module}'; correct it.")
    record = facts.get("record", f"{name}.json")
    if not name.isalnum():  # as the names of folders are split at "-" and "_"
        raise ValueError(f"@kind('{name}'): take a name of letters and digits alone.")
    if record and "environment" not in facts:
        raise ValueError(f"@kind('{name}'): give its 'environment', a file of envs.")
    defaults = {
        "record": record,
        "module": module,
        "place": f"runs/{RUN_PATH}/{Path(record).stem}",
        "log": f"{name}/{RUN_PATH}",
        "rule": name,
    }
    KINDS[name] = Kind(name, need, large or need, **{**defaults, **facts})
    return lambda planner: planner
