"""``calgrid status``: which jobs of a study are done, running or failed, and the remaining time.

It reads files below the results, and asks SLURM, where there is one, which jobs are in its queue.
"""

import json
import shutil
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from calgrid.cli import joblogs
from calgrid.cli.study_of import read_study
from calgrid.cli.terminal import Arguments, coloured, write, write_json
from calgrid.components import fingerprint
from calgrid.errors import DataError, visible_lines
from calgrid.plan.pending import FOLLOWS, Must, pending
from calgrid.plan.plan import Job, Plan, matching_runs
from calgrid.report.changes import TABLE, changes
from calgrid.storage.locks import described, live_owner
from calgrid.storage.records import INPUTS, Record

DONE, OUTDATED, DAMAGED = "done", "outdated", "damaged"
RUNNING, QUEUED = "running", "queued"
STOPPED, MISSING, FAILED, WAITING = "stopped", "missing", "failed", "waiting"
COLOURS = {
    DONE: "green",
    OUTDATED: "yellow",
    DAMAGED: "red",
    RUNNING: "blue",
    QUEUED: "blue",
    STOPPED: "yellow",
    FAILED: "red",
}
#: heading of the jobs in a state
MEANING = {
    RUNNING: "running",
    QUEUED: "in SLURM's queue",
    STOPPED: "stopped; the same command continues them",
    OUTDATED: "outdated; the same command makes them again",
    MISSING: "missing; the same command makes them again",
    FAILED: "failed; the same command tries them again",
    DAMAGED: "with a record that cannot be read",
}
#: progress older than this is marked with its age
OLD_SECONDS = 120


#: keys of specifications that hold fingerprints of inputs -> what these are
FINGERPRINTS = {
    "run_fingerprint": "its training",
    "first_stage": "its first stage",
    "data": "its data set",
    "shifts": "its shift families",
    "logits": "its logits",
}
#: keys that follow from the others
IMPLIED = {"fingerprint", "files"}


@dataclass(frozen=True)
class JobState:
    """A job of a study: stage, run or data set, state, and details."""

    stage: str
    about: str
    state: str
    log: str
    progress: str = ""
    epoch: int | None = None
    epochs: int | None = None
    left: str = ""
    progress_age_seconds: float | None = None
    where: str = ""
    reason: str = ""


def status(options: Arguments) -> None:
    """Print the states of the jobs of a study, or how the jobs of a run differ from its newest
    older results.
    """
    plan = Plan(read_study(options.study, options.data_root))
    if options.why:
        lines = []
        for key in matching_runs(plan.study.runs, options.why):
            for job in plan.jobs:
                if job.about == key.path:
                    lines.append(f"{job.about}/{Path(job.folder).name}: {_difference(job)}")
        write(visible_lines("\n".join(lines)) + "\n")
        return
    queue, must = slurm_queue(), pending(plan)
    # without stages after calibration, which take seconds
    found = [_state(job, queue, must) for job in plan.jobs]
    name, changed = plan.study.folder.name, changes(plan.study.folder)
    if options.json:
        content = {"study": name, "jobs": [asdict(job) for job in found], "changed": changed}
        write_json(content)
        return
    write(_text(name, found))
    if (plan.study.folder / TABLE).is_file():
        lines = [f"\nchanged in {TABLE} when it was last made:", *(changed or ["nothing"])]
        write("\n  ".join(lines) + "\n")


def _difference(job: Job[Any]) -> str:
    """Differences of a job from its newest older result: options, and modules, as ``losses/ls.py
    changed``.
    """
    folder = Path(job.folder)
    if Path(job.result).is_file():
        return "is there"
    kind = folder.name.rpartition("-")[0]
    others = folder.parent.glob(f"{kind}-*/{job.record}")
    newest = max(others, key=lambda path: path.stat().st_mtime, default=None)
    if newest is None:
        return "there is no older result"
    record = Record.read(newest.parent, job.record).content
    older, older_code = record["spec"], record[INPUTS]["code"]
    new, code = json.loads(json.dumps(job.spec)), fingerprint.modules_of(job.code)
    changes = list(_changed_values(older, new))
    for module in sorted({*older_code, *code}):
        file = module.removeprefix("calgrid.").replace(".", "/") + ".py"
        if module not in code:
            if older_code[module] not in code.values():  # else it has another name
                changes.append(f"{file} is not used any more")
        elif code[module] not in older_code.values():
            changes.append(f"{file} {'changed' if module in older_code else 'is new'}")
    return f"differs from {newest.parent.name} in {'; '.join(changes) or 'nothing'}"


def _changed_values(older: Any, new: Any, name: str = "") -> Iterator[str]:
    """Options in which two specifications differ, as ``alpha 0.05 -> 0.2``, and other inputs."""
    if name in FINGERPRINTS:
        if older != new:
            yield f"{FINGERPRINTS[name]} (see there)"
    elif isinstance(older, dict) and isinstance(new, dict):
        for key in sorted({*older, *new} - IMPLIED):
            yield from _changed_values(older.get(key), new.get(key), key)
    elif isinstance(older, list) and isinstance(new, list) and len(older) == len(new):
        for before, after in zip(older, new, strict=True):
            yield from _changed_values(before, after, name)
    elif older != new:
        yield f"{name} {json.dumps(older)} -> {json.dumps(new)}"


def slurm_queue() -> dict[str, str]:
    """Own jobs in SLURM's queue: comment, which names rule and folder -> number of the job and
    reason why it waits.
    """
    if shutil.which("squeue") is None:
        return {}
    command = ["squeue", "--me", "--noheader", "--format=%k %i (%r)"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except subprocess.TimeoutExpired:  # a cluster whose controller does not answer
        return {}
    return dict(line.split(maxsplit=1) for line in answer.stdout.splitlines() if " " in line)


def _state(job: Job[Any], queue: Mapping[str, str], must: Mapping[str, Must]) -> JobState:
    name = f"/{job.spec['probe']['name']}" if job.kind == "probe" else ""
    found = JobState(job.kind, f"{job.about}{name}", WAITING, job.log)
    lines = joblogs.last_attempt(job.log)
    if Path(job.result).exists():
        why = must[job.result].why if job.result in must else FOLLOWS
        try:
            Record.read(Path(job.folder), job.record)
            # upstream results may be rebuilt to the same bits
            is_done = why == FOLLOWS
            found = replace(
                found, state=DONE if is_done else OUTDATED, reason="" if is_done else why
            )
        except DataError as error:
            found = replace(found, state=DAMAGED, reason=str(error))
    elif owner := live_owner(Path(f"{job.folder}.lock")):
        found = _with_progress(replace(found, state=RUNNING, where=described(owner)), lines)
    elif number := next((queue[key] for key in queue if key.endswith(f"_{job.id}")), None):
        found = replace(found, state=QUEUED, where=f"SLURM job {number}")
    elif lines and lines[-1].startswith(joblogs.COMPLETE):
        date = lines[-1].removeprefix(joblogs.COMPLETE)
        found = replace(found, state=MISSING, reason=f"complete on {date}, removed since")
    elif lines and "the state is saved" in lines[-1]:
        found = _with_progress(replace(found, state=STOPPED), lines)
    elif Path(job.log).is_file():
        reason = joblogs.why([job.log, *joblogs.slurm_logs(job.log)])
        found = replace(found, state=FAILED, reason=reason)
    return found


def _with_progress(job: JobState, lines: list[str]) -> JobState:
    """A job with the progress from the lines of its log."""
    found = joblogs.progress(lines)
    if found is None:
        return job
    is_epoch = found["unit"] == "epoch"
    return replace(
        job,
        progress=f"{found['unit']} {found['done']}/{found['total']}{found['numbers']}",
        epoch=int(found["done"]) if is_epoch else None,
        epochs=int(found["total"]) if is_epoch else None,
        left=found["left"],
        progress_age_seconds=round(max(time.time() - Path(job.log).stat().st_mtime, 0.0), 1),
    )


def _text(study: str, found: list[JobState]) -> str:
    lines = [
        f"study '{study}': {sum(job.state == DONE for job in found)} of {len(found)} jobs done, "
        "without those of aggregate, tables, figures and report"
    ]
    stages: dict[str, Counter[str]] = defaultdict(Counter)
    for job in found:
        stages[job.stage][job.state] += 1
    for stage, states in stages.items():
        others = []
        for state in (*MEANING, WAITING):
            if states[state]:
                others.append(_coloured(f"{states[state]} {state}", state))
        done = f"{states[DONE]:>6d} of {states.total():<6d}"
        lines.append(
            f"  {stage:10s}{done if others else _coloured(done, DONE)}{', '.join(others)}".rstrip()
        )
    for state, meaning in MEANING.items():
        of_state = []
        for job in found:
            if job.state == state:
                of_state += _lines(job)
        if of_state:
            lines += ["", f"{_coloured(meaning, state)}:", *of_state]
    return "\n".join(lines) + "\n"


def _coloured(text: str, state: str) -> str:
    return coloured(text, COLOURS.get(state), sys.stdout)


def _lines(job: JobState) -> list[str]:
    """Lines about a job that is not done."""
    left = f", {job.left} left" if job.left and job.state == RUNNING else ""
    age = (job.progress_age_seconds or 0) if job.state == RUNNING else 0
    ago = f" ({age / 60:.0f} min ago)" if age > OLD_SECONDS else ""
    details = filter(None, [job.where, job.reason, job.log if job.state == FAILED else ""])
    first = f"  {job.stage} {job.about}: {job.progress}{left}{ago}".rstrip(": ")
    return [first, *(f"      {said}" for said in details)]
