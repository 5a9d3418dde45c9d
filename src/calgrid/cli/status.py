"""``calgrid status``: which jobs of a study are done, running or failed, and the remaining time.

It only reads files below the results, so that it works for jobs on this machine and on a cluster.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from calgrid.cli import joblogs
from calgrid.cli.colours import coloured
from calgrid.cli.listing import read_study
from calgrid.configuration.plan import Plan
from calgrid.configuration.repair import Stage, planned_stages
from calgrid.errors import DataError
from calgrid.storage.layout import EXTERNAL, Layout
from calgrid.storage.locks import live_owner
from calgrid.storage.records import HIDDEN

DONE, OUTDATED, RUNNING, STOPPED, FAILED, WAITING = (
    "done",
    "outdated",
    "running",
    "stopped",
    "failed",
    "waiting",
)
COLOURS = {DONE: "green", RUNNING: "blue", OUTDATED: "yellow", STOPPED: "yellow", FAILED: "red"}
#: heading of the jobs in a state
MEANING = {
    RUNNING: "running",
    STOPPED: "stopped; the same command continues them",
    FAILED: "failed",
    OUTDATED: "outdated (another configuration or source code); the same command recomputes them",
}
#: progress older than this is marked with its age
OLD_SECONDS = 120


@dataclass(frozen=True)
class Job:
    """A job of a study: stage, run or data set, state, and details."""

    stage: str
    about: str
    state: str
    log: str
    progress: str = ""
    epoch: int | None = None
    epochs: int | None = None
    left: str = ""
    said_seconds_ago: float | None = None
    where: str = ""
    reason: str = ""


def status(options: argparse.Namespace) -> None:
    """Print the states of the jobs of a study."""
    plan = Plan(read_study(options.configuration))
    found = jobs(plan)
    name = plan.study.layout.study
    if options.json:
        content = {"study": name, "jobs": [asdict(job) for job in found]}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
    else:
        sys.stdout.write(_text(name, found))


def jobs(plan: Plan) -> list[Job]:
    """Return the jobs of a study, except those after calibration, which take seconds."""
    layout = plan.study.layout
    return [_job(stage, layout) for stage in planned_stages(plan) if stage.name]


def _job(stage: Stage, layout: Layout) -> Job:
    rule, about = _named(stage, layout)
    log = layout.log(rule, about)
    of_log = Path(log)
    try:
        if stage.is_current():
            return Job(rule, about, DONE, log)
        state = OUTDATED
    except DataError:
        state = WAITING
    lines = joblogs.last_attempt(of_log)
    if owner := live_owner(stage.root / HIDDEN / f"{stage.name}.lock"):
        return Job(rule, about, RUNNING, log, where=_where(owner), **_progress(lines, of_log))
    if state == OUTDATED or not of_log.is_file():
        return Job(rule, about, state, log)
    if lines and "the state is saved" in lines[-1]:
        return Job(rule, about, STOPPED, log, **_progress(lines, of_log))
    return Job(rule, about, FAILED, log, reason=joblogs.why([log]))


def _named(stage: Stage, layout: Layout) -> tuple[str, str]:
    """Rule of a stage, and the name of its log."""
    if stage.name == "data":
        return "data", stage.root.name
    if stage.name == "calibrate":
        return "calibrate", str(stage.root.relative_to(layout.part("")))
    run = str(stage.root.relative_to(layout.run("")))
    if stage.name.startswith("probe_"):
        return "probe", f"{run}/{stage.name.removeprefix('probe_')}"
    return "import" if run.startswith(f"{EXTERNAL}/") else stage.name, run


def _where(owner: dict[str, Any]) -> str:
    job = f", SLURM job {owner['slurm_job']}" if owner.get("slurm_job") else ""
    return f"process {owner.get('pid')} on {owner.get('host')}{job} since {owner.get('since')}"


def _progress(lines: list[str], log: Path) -> dict[str, Any]:
    found = joblogs.progress(lines)
    if found is None:
        return {}
    ago = max(time.time() - log.stat().st_mtime, 0.0)
    shown = f"{found['unit']} {found['done']}/{found['total']}{found['numbers']}"
    counted = (
        {"epoch": int(found["done"]), "epochs": int(found["total"])}
        if found["unit"] == "epoch"
        else {}
    )
    return {"progress": shown, "left": found["left"], "said_seconds_ago": round(ago, 1), **counted}


def _text(study: str, found: list[Job]) -> str:
    lines = [
        f"study '{study}': {sum(job.state == DONE for job in found)} of {len(found)} jobs done"
    ]
    for stage in dict.fromkeys(job.stage for job in found):
        states = Counter(job.state for job in found if job.stage == stage)
        others = [
            _coloured(f"{states[state]} {state}", state)
            for state in (*MEANING, WAITING)
            if states[state]
        ]
        done = f"{states[DONE]:>6d} of {states.total():<6d}"
        lines.append(
            f"  {stage:10s}{done if others else _coloured(done, DONE)}{', '.join(others)}".rstrip()
        )
    for state, meaning in MEANING.items():
        lines += _paragraph(_coloured(meaning, state), [job for job in found if job.state == state])
    return "\n".join(lines) + "\n"


def _coloured(text: str, state: str) -> str:
    return coloured(text, COLOURS.get(state), sys.stdout)


def _paragraph(meaning: str, found: Iterable[Job]) -> list[str]:
    lines = []
    for job in found:
        left = f", {job.left} left" if job.left and job.state == RUNNING else ""
        old = (
            job.said_seconds_ago is not None
            and job.said_seconds_ago > OLD_SECONDS
            and job.state == RUNNING
        )
        ago = f" ({job.said_seconds_ago / 60:.0f} min ago)" if old and job.said_seconds_ago else ""
        lines.append(f"  {job.stage} {job.about}: {job.progress}{left}{ago}".rstrip(": "))
        lines += [f"      {said}" for said in (job.where, job.reason) if said]
        if job.state == FAILED:
            lines.append(f"      {job.log}")
    return ["", f"{meaning}:", *lines] if lines else []
