"""Which results of a study must be made: those that are missing, or were made from other inputs
than are there now.

Fingerprints, and so the names of records and folders, cover options, code and files of users.
Records also list the content of the results above them, which another computation may change.
"""

import functools
import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from calgrid.plan.plan import Job, Plan
from calgrid.storage.inputs import listing, record_content
from calgrid.storage.layout import MADE_FROM, SUMMARIES
from calgrid.storage.records import CHECKSUM, INPUTS, MODEL, Facts

MISSING, FORCED = "files of it are missing", "its computation is forced"
FOLLOWS = "results above it are made again"
OTHER_NAME = "its folder holds another result"
OTHER_INPUTS = "it was made from other results than are there now"
DAMAGED = "its record is damaged"
SEVERAL = "there are records of several versions"


class Must(NamedTuple):
    """Why a result must be made; whether files of it are there, and the records above it that are
    made before, of results of which files are there.
    """

    why: str
    there: bool
    above: list[str]


def pending(plan: Plan, forced: Collection[str] = ()) -> dict[str, Must]:
    """Record of each result that must be made -> why.

    Prepared data, and networks that the user may delete, are made again only for a result that
    needs them. ``forced`` are records of results that the user wants to be made again.
    """
    results = [_of_job(plan, job) for job in plan.jobs]
    results += [_of_stage(plan, stage) for stage in SUMMARIES]
    read = _Reader()
    found: dict[str, Must] = {}
    known = -1
    while known < len(found):  # what one result needs may be what others were made from
        known = len(found)
        for result in results:
            above = [record for record in result.above if record in found]
            why = FORCED if result.record in forced else _why(result, read)
            if why or above:
                again = [record for record in above if read.is_there(result.above[record])]
                there = read.is_there(result.folder)
                found[result.record] = Must(why or FOLLOWS, there, again)
        for result in results:
            if result.record in found and result.above:
                for record, files in result.needs.items():
                    if record not in found and not all(map(read.is_there, files)):
                        there = read.is_there(result.above[record])
                        found[record] = Must(MISSING, there, [])
    return found


@dataclass(frozen=True)
class _Result:
    """A result of a job or a stage.

    Attributes
    ----------
    record : its record.
    fingerprint : fingerprint in the record; '' of a stage, whose name has it.
    folder : folder to which the record's paths are relative.
    files : files without which it is missing.
    above : record -> folder of each result that it reads.
    needs : record -> files without which it cannot be made.
    parts : stages whose files it reads, of a stage.
    versions : pattern of the names of its records, of a stage.
    """

    record: str
    fingerprint: str
    folder: str
    files: Sequence[str]
    above: Mapping[str, str]
    needs: Mapping[str, Sequence[str]]
    parts: tuple[str, ...] = ()
    versions: str = ""


def _of_job(plan: Plan, job: Job[Any]) -> _Result:
    files = [] if job.rule == "data" else _files(job, plan.study.config.keep_models)
    above = {other.result: other.folder for other in job.above}
    needs = {other.result: _files(other, True) for other in job.above}
    return _Result(job.result, job.fingerprint, job.folder, files, above, needs)


def _of_stage(plan: Plan, stage: str) -> _Result:
    record, study = plan.stage_record(stage), plan.study.layout.file("")
    above = {plan.stage_record(name): study for name in MADE_FROM[stage]}
    if stage == "aggregate":
        above = {job.result: job.folder for job in plan.jobs if job.rule != "data"}
    parts, versions = MADE_FROM[stage], f"{stage}-*.json"
    return _Result(record, "", study, [record], above, {}, parts, versions)


def _files(job: Job[Any], model: bool) -> list[str]:
    models = [f"{job.folder}/{MODEL}"] if job.rule == "train" and model else []
    return [*job.files_of_result, *models]


def _why(result: _Result, read: "_Reader") -> str:
    """Why a result must be made by itself; empty if it is current."""
    if not all(map(read.is_there, result.files)):
        return MISSING
    if not read.is_there(result.record):  # prepared data that nothing needs
        return ""
    path = Path(result.record)
    if result.versions and len(list(path.parent.glob(result.versions))) > 1:
        return SEVERAL
    return _why_of_record(result, read.content(path), read)


def _why_of_record(result: _Result, content: Facts, read: "_Reader") -> str:
    if CHECKSUM not in content:
        return DAMAGED
    if result.fingerprint and content.get("fingerprint") != result.fingerprint:
        return OTHER_NAME
    recorded = content.get(INPUTS, {}).get("results", {})
    for folder in dict.fromkeys(result.above.values()):
        now = read.listing(folder, result.parts)
        of_folder = recorded.get(os.path.relpath(folder, result.folder), {})
        # a result that is gone may have been removed to save space
        if now and not (of_folder and of_folder.items() <= now.items()):
            return OTHER_INPUTS
    return ""


class _Reader:
    """Looks for each file, and reads each record, once."""

    def __init__(self) -> None:
        self.is_there = functools.cache(lambda name: Path(name).exists())
        self.content = functools.cache(record_content)
        self.listing = functools.cache(self._listing)

    def _listing(self, folder: str, parts: tuple[str, ...]) -> dict[str, str]:
        return listing(Path(folder), parts, self.content)
