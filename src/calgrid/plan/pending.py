"""Which results of a study must be made: those that are missing, or were made from other inputs
than are there now.

Fingerprints, and so the names of records and folders, cover options, code and files of users.
Records also list the content of the results above them, which another computation may change.
"""

import functools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from calgrid.plan.plan import Job, Plan
from calgrid.storage.records import CHECKSUM, INPUTS, MADE_FROM, MODEL, listing, record_content

MISSING, FORCED = "files of it are missing", "its computation is forced"
FOLLOWS = "results above it are made again"
OTHER_NAME = "its folder holds another result"
OTHER_INPUTS = "it was made from other results than are there now"
DAMAGED = "its record is damaged"
SEVERAL = "there are records of several versions"


class Must(NamedTuple):
    """Reason why a result is made; whether an old version of it is on disk; and records upstream of
    which an old version is rebuilt first.
    """

    why: str
    there: bool
    above: list[str]


def pending(plan: Plan, forced: Collection[str] = ()) -> dict[str, Must]:
    """Record of each result that must be made -> why.

    Prepared data, and networks that the user may delete, are made again only for a result that
    needs them. ``forced`` are records of results that the user wants to be made again.
    """
    keep = plan.study.config.keep_models
    jobs, read = [*plan.jobs, *plan.stages], _Reader()
    found: dict[str, Must] = {}
    known = -1
    while known < len(found):  # what one result needs may be what others were made from
        known = len(found)
        for job in jobs:
            above = [other for other in job.above if other.result in found]
            why = FORCED if job.result in forced else _why(job, keep, read)
            if why or above:
                again = [other.result for other in above if read.is_there(other.folder)]
                found[job.result] = Must(why or FOLLOWS, read.is_there(job.folder), again)
        for job in plan.jobs:
            needed = job.above if job.result in found else ()
            for other in needed:
                if other.result not in found and not all(map(read.is_there, _files(other, True))):
                    found[other.result] = Must(MISSING, read.is_there(other.folder), [])
    return found


def _files(job: Job[Any], model: bool) -> list[str]:
    """Files without which a result is missing."""
    models = [f"{job.folder}/{MODEL}"] if job.kind == "train" and model else []
    return [*job.files_of_result, *models]


def _why(job: Job[Any], keep_models: bool, read: "_Reader") -> str:
    """Why a result must be made by itself; empty if it is current."""
    if not all(map(read.is_there, _files(job, keep_models))):
        return "" if job.kind == "data" else MISSING  # data may be those that nothing needs
    path = Path(job.result)
    if job.is_stage and len(list(path.parent.glob(f"{job.kind}-*.json"))) > 1:
        return SEVERAL
    content = read.content(path)
    if CHECKSUM not in content:
        return DAMAGED
    if not job.is_stage and content.get("fingerprint") != job.fingerprint:
        return OTHER_NAME
    recorded = content.get(INPUTS, {}).get("results", {})
    for folder in dict.fromkeys(other.folder for other in job.above):
        now = read.listing(folder, MADE_FROM.get(job.kind, ()))
        of_folder = recorded.get(os.path.relpath(folder, job.folder), {})
        # a result that is gone may have been removed to save space
        if now and not (of_folder and of_folder.items() <= now.items()):
            return OTHER_INPUTS
    return ""


class _Reader:
    """Looks for each file, and reads each record, once."""

    def __init__(self) -> None:
        self.is_there = functools.cache(lambda name: Path(name).exists())
        self.content = functools.cache(record_content)
        self.listing = functools.cache(
            lambda folder, parts: listing(Path(folder), parts, self.content)
        )
