"""Logs of jobs: the first line of each attempt, and the reason of the last failure."""

import os
import re
import shlex
import socket
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

#: start of the first line of each attempt
MARK = "=== calgrid "
#: start of the last line of an attempt that ended well
COMPLETE = "=== complete, "
#: maximum reasons in a report, and maximum logs for all of them
SHOWN, SHOWN_LOGS = 4, 6
#: message of SLURM, or of Snakemake about SLURM, for an ended job -> reason and fix
SLURM = {
    r"exceeded memory limit|oom[_ -]kill|: Out Of Memory|'OUT_OF_MEMORY'": (
        "out of memory: raise mem_mb of the rule (set-resources in the profile) or, unless that is "
        "a constant there, retries, as each attempt asks for more"
    ),
    r"DUE TO TIME LIMIT|'TIMEOUT'": (
        "time limit reached: a training resumes from its saved state in the next attempt; for "
        "another job raise runtime of the rule (set-resources in the profile) or, unless that is a "
        "constant there, retries, as each attempt asks for more"
    ),
    r"DUE TO NODE FAILURE|'NODE_FAIL'": "its node failed",
    r"CANCELLED AT|'CANCELLED'": "cancelled",
}
#: message of Snakemake about a job that ``sbatch`` did not accept, with its reason
REFUSED = re.compile(r"sbatch failed\. The error message was '(?:sbatch: error: )?([^\n']*)")


def continue_log(log: Path) -> int:
    """Append the output of this process to the log of earlier attempts, and return the number of
    the attempt.

    Snakemake deletes the log of a job before each attempt; a second, hidden link keeps the text.
    """
    kept = log.with_name(f".{log.name}.attempts")
    try:
        kept.hardlink_to(log)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links: each attempt overwrites the log
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
    """Return the first line of an attempt: number, time, host, process and SLURM job."""
    job = f", SLURM job {number}" if (number := os.environ.get("SLURM_JOB_ID")) else ""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    where = f"process {os.getpid()} on {socket.gethostname()}{job}"
    return f"{MARK}{command}, attempt {attempt}, {now}, {where}"


def last_line() -> str:
    """Return the last line of an attempt that ended well, with the time."""
    return f"{COMPLETE}{datetime.now(UTC).isoformat(timespec='seconds')}"


#: output of :class:`calgrid.progress.Progress`
PROGRESS = re.compile(
    r": (?P<unit>\w+) (?P<done>\d+)/(?P<total>\d+)(?P<numbers>(?:, \w+ \S+)*), "
    r"(?P<left>[\d:]+) left$"
)


def last_attempt(log: str | Path) -> list[str]:
    """Return the lines of the last attempt in a log, without its first line; nothing if there is no
    log.
    """
    return _attempt(str(log))[1:]


def _attempt(log: str) -> list[str]:
    """Lines of the last attempt in a log; of the first attempt, lines after its mark."""
    *_, attempt = ["", *_read(log).split(MARK)]
    return [line for line in attempt.splitlines() if line.strip()]


def progress(lines: Sequence[str]) -> re.Match[str] | None:
    """Return the last line of progress: ``unit``, ``done``, ``total``, ``numbers`` and the time
    ``left``.
    """
    return next((found for line in reversed(lines) if (found := PROGRESS.search(line))), None)


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def slurm_logs(log: str) -> list[str]:
    """SLURM's log of the last attempt in a job's log, if there is one below this folder."""
    numbers = re.findall(rf"^{MARK}.*, SLURM job (\d+)$", _read(log), re.MULTILINE)
    if not numbers:
        return []
    return [str(path) for path in Path(".snakemake/slurm_logs").glob(f"rule_*/*/{numbers[-1]}.log")]


def why(logs: Sequence[str], message: str = "") -> str:
    """Return in one sentence why the last attempt of a job failed.

    ``logs`` are the job's log, and its SLURM log if any; they need not exist. ``message`` is that
    of Snakemake's executor about the job.
    """
    if refused := REFUSED.search(message):
        return (
            f"SLURM refused the job ({refused[1]}); correct slurm_partition, slurm_account, gres "
            "or the resources of the rule in the profile"
        )
    of_slurm = "\n".join([message, *map(_read, logs[1:])])
    for pattern, reason in SLURM.items():
        if re.search(pattern, of_slurm):
            return reason
    lines = _attempt(logs[0])
    # of several processes, the others may fail after the one that says why
    if said := [line for line in lines if line.startswith("calgrid ")]:
        return said[-1]
    if raised := _raised(lines):
        return raised
    return (
        f"killed, or ended without a message; the log ends with: {lines[-1]}"
        if lines
        else "no log: the job was not started, for a reason above or in the newest file of "
        ".snakemake/log"
    )


#: first line of Python's text of an exception, after the name of a process of torchrun
TRACEBACK = "Traceback (most recent call last):"


def _raised(lines: Sequence[str]) -> str:
    """Return the first line of the message of the last exception in a log; empty without any.

    All errors of CUDA end with the same further lines.
    """
    begins = [number for number, line in enumerate(lines) if line.endswith(TRACEBACK)]
    if not begins:
        return ""
    name = lines[begins[-1]].removesuffix(TRACEBACK)
    after = [line.removeprefix(name) for line in lines[begins[-1] + 1 :]]
    return next((line for line in after if not line.startswith(" ")), lines[-1])


class Failed(NamedTuple):
    """A failed job: the reason, and its missing output."""

    reason: str
    target: str


def report(
    failed: Mapping[str, Failed], blocked: Mapping[str, int], waiting: int, arguments: Sequence[str]
) -> str:
    """Return a summary of about twenty lines: failures with reasons, missing outputs, and how to
    continue.

    Parameters
    ----------
    failed : failed jobs by their logs; empty if the workflow was stopped (Ctrl-C, SIGTERM).
    blocked : number of jobs of each rule that depend on failed jobs.
    waiting : number of other jobs that were not started.
    arguments : command-line arguments of Snakemake.
    """
    if not failed:
        return (
            "Stopped: finished results are kept, and a training resumes from its last saved "
            "state; run the same command again."
        )
    logs: dict[str, list[str]] = {}
    for log, job in failed.items():
        logs.setdefault(job.reason, []).append(log)
    lines = [f"{len(failed)} job{'s' * (len(failed) > 1)} failed:"]
    named = max(SHOWN_LOGS // min(len(logs), SHOWN), 1)
    for reason, those in list(logs.items())[:SHOWN]:
        more = [f"  and {len(those) - named} more"] if len(those) > named else []
        # the target comes first: an option with several values would consume it
        again = shlex.join(["snakemake", failed[those[0]].target, *arguments])
        first = "the first of them " if len(those) > 1 else "it "
        lines += [
            *(f"  {log}" for log in those[:named]),
            *more,
            f"    {reason}",
            f"    Try {first}alone: {again}",
        ]
    if rest := sum(map(len, list(logs.values())[SHOWN:])):
        lines += [f"  and {rest} more for other reasons: see above and the end of their logs"]
    if blocked:
        rules = ", ".join(
            f"{rule} ({number})" if number > 1 else rule for rule, number in blocked.items()
        )
        lines += [f"Not made because of these failures: {rules}."]
    if waiting:
        lines += [
            f"{waiting} other jobs were not started: --keep-going runs jobs that do not need the "
            "failed ones."
        ]
    lines += ["Fix the causes and run the same command again: finished results are kept."]
    if "report" in blocked:
        lines += [
            "For a report without the failed runs, remove them from the configuration: no other "
            "run is repeated."
        ]
    return "\n".join(lines)
