"""Kill random processes of a running grid, let it end, and compare it with an undisturbed run.

::

    python benchmarks/chaos.py      25 kills across a grid of 8 runs, some minutes on 2 cores
    python benchmarks/chaos.py --kills 60 --seed 2
    python benchmarks/chaos.py --signals INT TERM HUP QUIT STOP

Every few seconds one process gets a signal (SIGKILL unless others are named; a process that gets
SIGSTOP goes on after a second): most often a job's (training, prediction, calibration,
aggregation, tables, ...), sometimes Snakemake itself, whose jobs may go on as orphans while the
next call already runs. Whenever Snakemake has ended before the grid is complete it is called again.
At the end all results must have the bytes of the undisturbed run and no row of the metrics may be
missing or doubled; else the exit code is 1. Everything is written to temporary folders, which are
removed.
"""

import argparse
import collections
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import yaml

from calgrid.storage.schema import RUN_KEY

HOME = Path(__file__).resolve().parents[1]
MARK = "CALGRID_CHAOS"
#: files that hold times, costs or provenance differ between equal runs
DIFFERENT = {".json", ".html"}
IDENTITY = [*RUN_KEY, "checkpoint", "calibrator", "fit_seed", "split"]
IDENTITY += ["shift", "severity", "metric"]
STUDY = {
    "study": "chaos",
    "device": "cpu",
    "protocols": {"long": {"base": "digits", "epochs": 200}},
    "grids": [
        {
            "protocol": "long",
            "datasets": ["digits"],
            "backbones": ["resnet8"],
            "methods": ["ce", "mbls", "fedlas_ls", "tst+mbls"],
            "seeds": [1, 2],
            "calibrators": ["none", "ts", "smart"],
            "shifts": ["ood/photos"],
        }
    ],
    "statistics": {"bootstrap": 50},
}


def main() -> int:
    """Return 0 if the disturbed grid ended like the undisturbed one."""
    parser = argparse.ArgumentParser(description="Random kills across a grid, then comparison.")
    parser.add_argument("--kills", type=int, default=25, help="processes to kill (25)")
    parser.add_argument(
        "--seed", type=int, default=1, help="seed of the choice of processes and moments (1)"
    )
    parser.add_argument(
        "--pause", type=float, default=4.0, help="mean seconds between two kills (4)"
    )
    parser.add_argument(
        "--controllers", type=float, default=0.25, help="share of kills that hit Snakemake (0.25)"
    )
    parser.add_argument(
        "--signals", nargs="+", default=["KILL"], help="signals to choose from, as KILL INT STOP"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as quiet, tempfile.TemporaryDirectory() as wild:
        begin = time.monotonic()
        code = start(Path(quiet), "quiet").wait()
        undisturbed = time.monotonic() - begin
        if code:
            sys.exit(f"The undisturbed grid failed:\n{Path(quiet, 'snakemake.log').read_text()}")
        begin = time.monotonic()
        killed, calls = disturb(Path(wild), options)
        disturbed = time.monotonic() - begin
        wrong = compare(Path(quiet), Path(wild))
    print(f"kills                   {sum(killed.values())}: {dict(killed.most_common())}")
    print(f"calls of Snakemake      {calls}")
    print(f"seconds                 {disturbed:.0f}, undisturbed {undisturbed:.0f}")
    print(
        "\n".join(wrong)
        if wrong
        else "The results are those of the undisturbed run, byte for byte."
    )
    return int(bool(wrong))


def start(folder: Path, mark: str) -> subprocess.Popen:
    """Call Snakemake in a folder; its processes and theirs carry a mark in their environment."""
    config = folder / "chaos.yaml"
    config.write_text(yaml.safe_dump(STUDY), encoding="utf-8")
    command = [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        HOME / "Snakefile",
        "--directory",
        folder,
    ]
    command += [
        "--configfile",
        config,
        "--cores",
        "2",
        "--nolock",
        "--rerun-incomplete",
        "--keep-going",
    ]
    environment = {**os.environ, MARK: mark, "OMP_NUM_THREADS": "1", "CALGRID_RESUME_SECONDS": "1"}
    with (folder / "snakemake.log").open("a", encoding="utf-8") as log:
        return subprocess.Popen(
            [*command, "--retries", "2"], stdout=log, stderr=log, env=environment
        )


def disturb(folder: Path, options: argparse.Namespace) -> tuple[collections.Counter, int]:
    """Run the grid to its end, with kills; return what was killed and how often Snakemake was
    called.
    """
    rng = random.Random(options.seed)
    mark = f"chaos-{os.getpid()}"
    killed: collections.Counter = collections.Counter()
    controller, calls = start(folder, mark), 1
    while True:
        strike = time.monotonic() + rng.expovariate(1 / options.pause)
        while controller.poll() is None and time.monotonic() < strike:
            time.sleep(0.05)
        if controller.returncode == 0:
            for _, process in jobs(mark):  # orphans that wait for a lock, to find that all is done
                os.kill(process, 9)
            return killed, calls
        if controller.returncode is not None:
            controller, calls = start(folder, mark), calls + 1
            continue
        if sum(killed.values()) >= options.kills:
            controller.wait()
            continue
        name = rng.choice(options.signals)
        if rng.random() < options.controllers:
            send(name, controller.pid)
            if name != "STOP":
                controller.wait()
            killed[f"snakemake {name}"] += 1
        elif victims := sorted(jobs(mark)):
            stage, process = rng.choice(victims)
            send(name, process)
            killed[f"{stage} {name}"] += 1


def send(name: str, process: int) -> None:
    """Send a signal; after SIGSTOP, SIGCONT follows a second later."""
    with contextlib.suppress(ProcessLookupError):  # it has ended
        os.kill(process, signal.Signals[f"SIG{name}"])
        if name == "STOP":
            time.sleep(1)
            os.kill(process, signal.SIGCONT)


def jobs(mark: str) -> Iterator[tuple[str, int]]:
    """Stage and number of each process of ``calgrid`` that carries the mark."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode().split("\0")
            ours = f"{MARK}={mark}" in (folder / "environ").read_bytes().decode(
                errors="replace"
            ).split("\0")
        except OSError:  # it has ended
            continue
        if ours and words[1:3] == ["-m", "calgrid"]:
            yield words[3], int(folder.name)


def compare(quiet: Path, wild: Path) -> list[str]:
    """What is wrong with the disturbed results, a line each; prints how much was compared."""
    names = [contents(folder) for folder in (quiet, wild)]
    wrong = [f"only in one of the results: {name}" for name in sorted(names[0] ^ names[1])]
    same = sorted(names[0] & names[1])
    wrong += [
        f"differs: {name}"
        for name in same
        if (quiet / name).read_bytes() != (wild / name).read_bytes()
    ]
    metrics = pd.read_parquet(wild / "results/chaos/metrics.parquet")
    doubled = int(metrics.duplicated(IDENTITY).sum())
    wrong += [f"{doubled} rows are there twice"] if doubled else []
    resumed = [
        json.loads(path.read_text())["interruptions"]
        for path in wild.glob("results/runs/*/*/*/*/*/train-*/train.json")
    ]
    print(f"compared                {len(same)} files, {len(metrics)} rows of metrics")
    print(
        f"runs resumed            {sum(map(bool, resumed))} of {len(resumed)}, {sum(resumed)} "
        "times in all"
    )
    return wrong


def contents(folder: Path) -> set[Path]:
    """Result files whose bytes the configuration determines, relative to the folder."""
    files = {path.relative_to(folder) for path in folder.glob("results/**/*") if path.is_file()}
    unlike = ("logs", "data")
    return {
        path
        for path in files
        if path.suffix not in DIFFERENT
        and ".calgrid" not in path.parts
        and path.parts[1] not in unlike
        and not path.stem.startswith(("costs", "training_time", "pareto"))
    }


if __name__ == "__main__":
    sys.exit(main())
