"""Logs of the workflow's jobs: a first line for each attempt, and why the last attempt failed."""

import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

#: begins the line that stands before what each attempt writes
MARK = "=== calgrid "
#: reasons that a report lists, and logs that it names for all of them
SHOWN, SHOWN_LOGS = 4, 6
#: what SLURM, or Snakemake about SLURM, says of a job that it ended, and what to do about that
SLURM = {
    r"exceeded memory limit|oom[_ -]kill|: Out Of Memory|'OUT_OF_MEMORY'": (
        "out of memory: each attempt asks for more, so raise retries, or mem_mb of the rule (set-resources)"
    ),
    r"DUE TO TIME LIMIT|'TIMEOUT'": (
        "time limit reached: a training goes on from its saved state when it is tried again; else raise retries, or "
        "runtime of the rule (set-resources)"
    ),
    r"DUE TO NODE FAILURE|'NODE_FAIL'": "its node failed: give the same command again",
    r"CANCELLED AT|'CANCELLED'": "cancelled: give the same command again",
}


def continue_log(log: Path) -> int:
    """Let what this process writes follow the text of earlier attempts, and return the number of this attempt.

    Snakemake deletes the log of a job before each attempt; a second, hidden link keeps the text.
    """
    kept = log.with_name(f".{log.name}.attempts")
    try:
        kept.hardlink_to(log)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links: each attempt's text replaces the last one's
        return 1
    if not kept.samefile(log):
        with kept.open("ab") as stream:
            stream.write(log.read_bytes())
            for descriptor in (1, 2):
                os.dup2(stream.fileno(), descriptor)
        log.unlink()
        log.hardlink_to(kept)
    return 1 + _read(str(kept)).count(MARK)


def first_line(command: str, attempt: int) -> str:
    """Return the line that begins an attempt: its number, when, where and as which process it runs."""
    job = f", SLURM job {number}" if (number := os.environ.get("SLURM_JOB_ID")) else ""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return f"{MARK}{command}, attempt {attempt}, {now}, process {os.getpid()} on {socket.gethostname()}{job}"


#: what :class:`calgrid.progress.Progress` writes
PROGRESS = re.compile(
    r": (?P<unit>\w+) (?P<done>\d+)/(?P<total>\d+)(?P<numbers>(?:, \w+ \S+)*), (?P<left>[\d:]+) left$"
)


def last_attempt(log: str | Path) -> list[str]:
    """Return the lines of the last attempt in a log, without the one that begins it; nothing where there is no log."""
    *_, attempt = ["", *_read(str(log)).split(MARK)]
    return [line for line in attempt.splitlines()[1:] if line.strip()]


def progress(lines: Sequence[str]) -> re.Match[str] | None:
    """Return the last line of progress: ``unit``, ``done``, ``total``, ``numbers`` and the time ``left``."""
    return next((found for line in reversed(lines) if (found := PROGRESS.search(line))), None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def why(logs: Sequence[str], message: str = "") -> str:
    """Say in one sentence why the last attempt of a job failed.

    Parameters
    ----------
    logs : the job's log, and SLURM's log of the job where there is one; they need not exist.
    message : what Snakemake's executor says about the job.
    """
    of_slurm = "\n".join([message, *map(_read, logs[1:])])
    for pattern, reason in SLURM.items():
        if re.search(pattern, of_slurm):
            return reason
    *_, attempt = ["", *_read(logs[0]).split(MARK)]
    lines = [line for line in attempt.splitlines() if line.strip()]
    if len(lines) > 1 and (lines[-1].startswith("calgrid ") or "Traceback (most recent call last):" in lines):
        return lines[-1]
    return f"killed, or ended without a message; the log ends with: {lines[-1]}" if lines else "no log; see above"


class Failed(NamedTuple):
    """A failed job: why, and the file that it should have made."""

    reason: str
    target: str


def report(failed: Mapping[str, Failed], blocked: Mapping[str, int], waiting: int, arguments: Sequence[str]) -> str:
    """Return in some twenty lines what failed and why, what was not made because of that, and how to go on.

    Parameters
    ----------
    failed : by the log of each failed job, which names its run; jobs with the same reason share it. None failed when
        the workflow was stopped (Ctrl-C, SIGTERM).
    blocked : number of jobs of each rule that need what failed.
    waiting : number of further jobs that were not begun.
    arguments : with which Snakemake was called.
    """
    if not failed:
        return (
            "Stopped before the end: what is finished is kept, and a training goes on from its last saved state; give "
            "the same command again."
        )
    logs: dict[str, list[str]] = {}
    for log, job in failed.items():
        logs.setdefault(job.reason, []).append(log)
    lines = [f"{len(failed)} job{'s' * (len(failed) > 1)} failed:"]
    named = max(SHOWN_LOGS // min(len(logs), SHOWN), 1)
    for reason, those in list(logs.items())[:SHOWN]:
        more = [f"  and {len(those) - named} more"] if len(those) > named else []
        # the target stands first: an option that takes several values would swallow it
        again = shlex.join(["snakemake", failed[those[0]].target, *arguments])
        first = "the first of them " if len(those) > 1 else "it "
        lines += [*(f"  {log}" for log in those[:named]), *more, f"    {reason}", f"    Try {first}alone: {again}"]
    if rest := sum(map(len, list(logs.values())[SHOWN:])):
        lines += [f"  and {rest} more for other reasons, which stand above and at the end of their logs"]
    if blocked:
        rules = ", ".join(f"{rule} ({number})" if number > 1 else rule for rule, number in blocked.items())
        lines += [f"Not made because of that: {rules}."]
    if waiting:
        lines += [f"{waiting} other jobs were not begun: --keep-going runs what does not need the failed ones."]
    lines += ["Mend that and give the same command again: what is finished is kept."]
    if "report" in blocked:
        lines += ["For a report without the failed runs, take them out of the configuration: no other is made again."]
    return "\n".join(lines)
