"""``calgrid run``: Snakemake with one line for each stage; its own output goes to a log."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import TextIO

import yaml

from calgrid.cli import events, joblogs
from calgrid.cli.study_of import STUDY_FILE, configuration, configured_folder, require_current
from calgrid.cli.terminal import Arguments, coloured
from calgrid.errors import StateError, visible_lines
from calgrid.progress import duration
from calgrid.storage.atomic import write_text
from calgrid.storage.locks import live_owner
from calgrid.storage.records import HIDDEN, STUDY_STAGES, Facts, why_not_current
from calgrid.study.home import home

#: rules that only collect others
COLLECTING = ("all", "default")
#: seconds between two looks at the events, and between two pictures in a terminal and in a log:
#: each asks for the logs of all running jobs
LOOK, TERMINAL_INTERVAL, LOG_INTERVAL = 0.5, 2.0, 30.0
#: options of Snakemake that say how many jobs run at once
CORES = ("-c", "--cores", "-j", "--jobs", "--profile", "--workflow-profile")
DRY_RUN = {"-n", "--dry-run", "--dryrun"}
#: options of Snakemake with which files of the study need not be there at the end
PARTIAL = DRY_RUN | {"-U", "--until", "-O", "--omit-from", "--batch", "-t", "--touch", "--unlock"}
#: last lines of the log that are shown if Snakemake fails without a message of ours
SHOWN_LINES = 12


@dataclass
class Running:
    """A job that was handed to the executor."""

    begin: float
    log: str
    #: of its result, while it is being made
    lock: Path

    def is_queued(self) -> bool:
        """Whether the job waits for its first start or, after a node failed, for another one."""
        if self.lock.exists():
            return live_owner(self.lock) is None
        # the last attempt has not begun, or has said how it ended
        last = joblogs.last_attempt(self.log)[-1:]
        is_over = any(line.startswith((joblogs.COMPLETE, "calgrid ")) for line in last)
        return is_over or not Path(self.log).exists()


@dataclass
class Stage:
    """Jobs of a rule."""

    total: int
    done: int = 0
    running: dict[int, Running] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    #: of finished jobs
    seconds: float = 0.0

    def text(self, now: float) -> str:
        """``7 of 12 done, 2 running, 1 failed, 3:20 left``, or ``12 to do``."""
        if not (self.done or self.running or self.failed):
            return f"{self.total} to do"
        parts = [f"{self.done} of {self.total} done"]
        started = [job for job in self.running.values() if not job.is_queued()]
        queued = len(self.running) - len(started)
        for number, state in ((len(started), "running"), (queued, "queued")):
            if number:
                parts.append(f"{number} {state}")
        if self.failed:
            parts.append(coloured(f"{len(self.failed)} failed", "red", sys.stdout))
        left = self.seconds_left(now, started)
        if left is not None:
            parts.append(f"{duration(left)} left")
        return ", ".join(parts)

    def seconds_left(self, now: float, started: Sequence[Running]) -> float | None:
        """Seconds until the last job of the stage, assuming the mean time of finished jobs, or else
        the estimates of running ones; None if none runs.
        """
        if not self.running:
            return None
        if self.done:
            each = self.seconds / self.done
        else:
            told = [now - job.begin + left for job in started if (left := _left(job.log))]
            if not told:
                return None
            each = max(told)
        waiting = self.total - self.done - len(self.failed) - len(self.running)
        of_running = sum(max(each - (now - job.begin), 0.0) for job in self.running.values())
        return (of_running + waiting * each) / len(self.running)


def _left(log: str) -> float | None:
    """Seconds left by the last line of progress in the log of a job."""
    found = joblogs.progress(joblogs.last_attempt(log))
    if found is None:
        return None
    seconds = 0
    for part in found["left"].split(":"):
        seconds = 60 * seconds + int(part)
    return float(seconds)


class Stages:
    """All stages, from the events of Snakemake; of a dry run only their totals."""

    def __init__(self, dry_run: bool = False) -> None:
        self.dry_run = dry_run
        self.stages: dict[str, Stage] = {}
        self._rule_of: dict[int, str] = {}

    def take(self, event: Facts) -> str:
        """Count an event; return the text for the user."""
        kind = event["event"]
        if kind == events.SAID:
            return str(event["text"])
        if kind == events.RUN_INFO:
            for rule, total in event["stats"].items():
                if rule not in (*COLLECTING, "total"):
                    self.stages.setdefault(rule, Stage(0)).total = total
            return ""
        if self.dry_run:
            return ""
        job, now = event["jobid"], event["time"]
        if kind == events.JOB_INFO and event["rulename"] in self.stages:
            self._rule_of[job] = event["rulename"]
            stage = self.stages[event["rulename"]]
            log, output = (next(iter(event[part]), "") for part in ("log", "output"))
            stage.running[job] = Running(now, log, Path(f"{Path(output).parent}.lock"))
            if job in stage.failed:
                stage.failed.remove(job)
                return f"{log}: another attempt"
        elif job in self._rule_of:
            stage = self.stages[self._rule_of[job]]
            running = stage.running.pop(job, None)
            if kind == events.JOB_ERROR:
                stage.failed.add(job)
                return f"{event['log'][0]}: {joblogs.why(event['log'], event['rulemsg'] or '')}"
            if running is not None:
                stage.done += 1
                stage.seconds += now - running.begin
        return ""

    def lines(self) -> list[str]:
        """One line for each stage."""
        width = max(map(len, self.stages), default=0)
        now = time.time()
        return [f"  {rule:{width}s}  {stage.text(now)}" for rule, stage in self.stages.items()]


class Screen:
    """The stages in a terminal, redrawn in place; in a log, changed stages."""

    def __init__(self, output: TextIO) -> None:
        self.output = output
        self.in_place = output.isatty()
        self._interval = TERMINAL_INTERVAL if self.in_place else LOG_INTERVAL
        self._shown: list[str] = []
        self._last = -LOG_INTERVAL

    def is_due(self) -> bool:
        """Whether the screen is due to be redrawn."""
        return time.monotonic() - self._last >= self._interval

    def say(self, text: str) -> None:
        """Write permanent lines; the stages below are due again."""
        if self.in_place:
            self._last = -LOG_INTERVAL
        self._clear()
        self.output.write(f"{visible_lines(text)}\n")
        self.output.flush()

    def draw(self, lines: Sequence[str], last: bool = False) -> None:
        """Draw the stages; the ``last`` drawing stays."""
        self._last = time.monotonic()
        if self.in_place:
            self._clear()
            columns = shutil.get_terminal_size().columns
            shown = [line[: columns - 1] for line in lines]
            self.output.write("".join(f"{line}\n" for line in shown))
            self._shown = [] if last else shown
        else:
            changed = [line for line in lines if line not in self._shown]
            self.output.write("".join(f"{line}\n" for line in changed))
            self._shown = list(lines)
        self.output.flush()

    def _clear(self) -> None:
        if self.in_place and self._shown:
            self.output.write(f"\x1b[{len(self._shown)}A\x1b[J")
            self._shown = []


def run(options: Arguments) -> None:
    """Run Snakemake on a study and show its stages.

    Raises
    ------
    ConfigError : the argument names no study.
    StateError : Snakemake fails; what failed was shown before.
    """
    place: Path = options.study
    values = configuration(place)
    study = configured_folder(values)
    file = place
    if place.is_dir():
        file = study / HIDDEN / STUDY_FILE
        write_text(file, yaml.safe_dump(values, allow_unicode=True))
    now = datetime.now().astimezone()
    log = Path(".snakemake/log", f"{now:%Y-%m-%dT%H%M%S}.run-{os.getpid()}.log")
    log.parent.mkdir(parents=True, exist_ok=True)
    screen = Screen(sys.stdout)
    screen.say(f"{place}: planning; all messages go to {log}")
    command = _command(file, options.snakemake)
    with tempfile.TemporaryDirectory() as folder, log.open("w", encoding="utf-8") as output:
        told = Path(folder, "events")
        told.touch()
        environment = {**os.environ, events.VARIABLE: str(told)}
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        stages = Stages(dry_run=bool(DRY_RUN.intersection(options.snakemake)))
        said = _follow(process, told, stages, screen)
    if process.returncode == 0:
        if not stages.stages:
            screen.say("Nothing to be done.")
        elif stages.dry_run:
            return
        if _is_whole(options.snakemake):
            require_current(study, study)
        elif why_not_current(study):
            return
        for name, path in (("Report", "report.html"), ("Numbers", "metrics.parquet")):
            screen.say(f"{name + ':':8s} {(study / path).resolve()}")
        return
    if not said:
        last = log.read_text(encoding="utf-8", errors="replace").splitlines()[-SHOWN_LINES:]
        screen.say("\n".join(last))
    raise StateError(f"Snakemake ended with exit code {process.returncode}; its messages: {log}")


def _is_whole(further: Sequence[str]) -> bool:
    """Whether a call of Snakemake with these options makes all files of the study."""
    if PARTIAL.intersection(option.split("=")[0] for option in further):
        return False
    return not any(option in STUDY_STAGES or "/" in option for option in further)


def _command(configuration: Path, further: Sequence[str]) -> list[str]:
    """Command line of Snakemake, with the workflow in the working directory or else calgrid's."""
    command = [sys.executable, "-m", "snakemake", "--configfile", str(configuration)]
    if not any(Path(name).is_file() for name in ("Snakefile", "workflow/Snakefile")):
        command += ["--snakefile", str(home() / "workflow/Snakefile")]
    if not any(option.split("=")[0] in CORES for option in further):
        command += ["--cores", "all"]
    return [*command, *further]


def _follow(process: subprocess.Popen[bytes], file: Path, stages: Stages, screen: Screen) -> bool:
    """Show the events of a process until it ends; return whether it printed a message."""
    said = False
    # Ctrl-C reaches Snakemake, too, which ends its jobs and then itself; a scheduler's SIGTERM does
    # not
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    term = signal.signal(signal.SIGTERM, lambda *_: process.terminate())
    try:
        with file.open(encoding="utf-8") as lines:
            ended = False
            while not ended:
                ended = process.poll() is not None
                place = lines.tell()
                while (line := lines.readline()).endswith("\n"):
                    place = lines.tell()
                    if text := stages.take(json.loads(line)):
                        screen.say(text)
                        said = True
                lines.seek(place)  # of a line that is not complete yet
                if ended or screen.is_due():
                    screen.draw(stages.lines(), last=ended)
                if not ended:
                    time.sleep(LOOK)
    except BaseException:  # the reader of the output (head, less) has closed it
        process.terminate()
        process.wait()
        raise
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, term)
    return said
