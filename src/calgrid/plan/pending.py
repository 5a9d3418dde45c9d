"""Pending results of a study: missing, or stale because their inputs have changed.

Fingerprints, and so the names of records and folders, cover options, code and files of users.
Records also list the content of upstream results, which a rebuild may change.
"""

import functools
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from calgrid.plan.plan import Job, Plan
from calgrid.storage.records import CHECKSUM, INPUTS, MADE_FROM, MODEL, listing, record_content

MISSING, FORCED = "some of its files are missing", "its computation is forced"
FOLLOWS = "upstream results are rebuilt first"
OTHER_NAME = "its folder holds another result"
OTHER_INPUTS = "its upstream results have changed"
DAMAGED = "its record is damaged"
SEVERAL = "there are records of several versions"


class Must(NamedTuple):
    """Reason to make a result; whether an old version is on disk; upstream records to rebuild
    first.
    """

    why: str
    there: bool
    above: list[str]


def pending(plan: Plan, forced: Collection[str] = ()) -> dict[str, Must]:
    """Record of each pending result -> reason.

    Prepared data, and networks that the user may delete, are rebuilt only for a pending result
    downstream. ``forced`` are records of results to rebuild by the user's wish.
    """
    keep = plan.study.config.keep_models
    jobs, read = [*plan.jobs, *plan.stages], _Reader()
    found: dict[str, Must] = {}
    known = -1
    while known < len(found):  # a rebuilt input of one result may make others stale
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
    """Required files of a result."""
    models = [f"{job.folder}/{MODEL}"] if job.kind == "train" and model else []
    return [*job.files_of_result, *models]


def _why(job: Job[Any], keep_models: bool, read: "_Reader") -> str:
    """Reason to make a result, apart from pending upstream results; empty if current."""
    if not all(map(read.is_there, _files(job, keep_models))):
        return "" if job.kind == "data" else MISSING  # no pending result may need the data
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
        # a missing upstream result may have been removed to save space
        if now and not (of_folder and of_folder.items() <= now.items()):
            return OTHER_INPUTS
    return ""


class _Reader:
    """Memoises lookups of files and reads of records."""

    def __init__(self) -> None:
        self.is_there = functools.cache(lambda name: Path(name).exists())
        self.content = functools.cache(record_content)
        self.listing = functools.cache(
            lambda folder, parts: listing(Path(folder), parts, self.content)
        )
