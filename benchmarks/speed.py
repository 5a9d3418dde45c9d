"""Measure the speeds of calgrid.

::

    python benchmarks/speed.py                     all of them
    python benchmarks/speed.py --only planning     one of setup, grid, planning, imports
    python benchmarks/speed.py --only commands --old ../other      beside another checkout

Everything is written to temporary folders, which are removed.
"""

import argparse
import itertools
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import pages
from calgrid.storage.logits import Logits, write_logits

HOME = Path(__file__).resolve().parents[1]
JOBS_PER_RUN = 3  # train, predict, calibrate
Figures = dict[str, Any]


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(description="Measure how long calgrid takes.")
    parts = [*MEASUREMENTS, "commands"]
    parser.add_argument("--only", nargs="+", choices=parts, default=list(MEASUREMENTS))
    parser.add_argument("--old", type=Path, help="checkout whose commands are measured, too")
    parser.add_argument("--cores", default="all", help="cores for the default grid (all)")
    parser.add_argument(
        "--runs", type=int, default=1000, help="runs of the grid that is planned (1000)"
    )
    parser.add_argument(
        "--repeats", type=int, default=3, help="repeats of planning and imports (3)"
    )
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of this machine."""
    (under,) = pages.machine(*options.only).items()
    found: dict[str, Any] = {}
    compared = {}
    if "commands" in options.only and options.old is None:
        sys.exit("--only commands needs --old, the checkout to compare with.")
    for part in options.only:
        if part == "commands":
            compared = commands(options)
            continue
        figures = MEASUREMENTS[part](options)
        pages.print_lines(part, figures)
        found |= {f"{part}: {name}": {under[0]: value} for name, value in figures.items()}
    return {"conditions": dict([under]), "figures": found, "commands": compared}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    measured_on = itertools.chain(*figures["figures"].values())
    machines = dict.fromkeys(measured_on, ",.4g")
    return f"""# Speed

    make bench        # BENCH_ARGS="--only NAME ...": {", ".join(MEASUREMENTS)}

{pages.conditions(figures)}

{pages.table("", figures["figures"], machines)}

{pages.table("command, samples x classes", figures["commands"], COLUMNS)}

- Set-up: a new environment from `envs/requirements.lock`, downloads included (from a near mirror).
- Grid: the default grid and its report, from nothing, and a second call.
- Planning: a dry run of 999 runs minus that of one, median of three. Nine tenths are Snakemake's;
  the graph alone takes 1.5 to 1.7 ms a job.
- Imports: PyTorch is 1.6 to 1.9 s of them, pandas 0.3 s. Jobs of one machine share them.
- Commands: those of commit 822f8287 (before) and of the present code in turn, medians of three, on
  files of logits in Parquet.
- All of `.ci/run` took 1,645 s on the AMD EPYC, 2026-11-29 (set-up with SLURM and browser 158,
  `make test` 490, `make demo` with style and documentation 228, `make test-rest` 710).
"""


# measurements
# --------------------------------------------------------------------------------------------------


def setup(options: argparse.Namespace) -> Figures:
    """Install the pinned release into a new virtual environment."""
    with tempfile.TemporaryDirectory() as folder:
        command = [
            "make",
            "-C",
            str(HOME),
            "setup",
            f"VENV={folder}/venv",
            f"PYTHON={sys.executable}",
        ]
        seconds, _ = timed(command)
        size = sum(path.lstat().st_size for path in Path(folder).rglob("*") if not path.is_dir())
    return {"seconds": seconds, "size in GB": size / 1e9}


def grid(options: argparse.Namespace) -> Figures:
    """Run the default grid from nothing to the report."""
    with tempfile.TemporaryDirectory() as folder:
        # jobs run in processes of a server: their processor time is not known here
        seconds, _ = timed([*snakemake(folder), "--cores", options.cores])
        report = next(Path(folder).glob("results/*/report.html"))
        size = report.stat().st_size / 1e6
        _, again = timed([*snakemake(folder), "--cores", options.cores])
    return {
        "seconds": seconds,
        "processor seconds, nothing to be done": again,
        "report in MB": size,
    }


def planning(options: argparse.Namespace) -> Figures:
    """Plan a large grid and a grid of one run."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = Path(folder, "large.yaml"), Path(folder, "small.yaml")
        runs = write_grid(large, options.runs)
        write_grid(small, 1)
        plans = {
            path: [*snakemake(folder), "--configfile", str(path), "-n", "-q", "all"]
            for path in (small, large)
        }
        # alternating, so that a busy moment of the machine does not fall on one of the two alone
        times = [(timed(plans[small]), timed(plans[large])) for _ in range(options.repeats)]
    jobs = JOBS_PER_RUN * runs
    figures: Figures = {"jobs": jobs, "repeats": options.repeats}
    for place, clock in enumerate(("seconds", "processor seconds")):
        start, whole = (statistics.median(pair[grid][place] for pair in times) for grid in (0, 1))
        figures[clock] = whole
        figures[f"{clock}, grid of one run"] = start
        figures[f"milliseconds a job, by {clock}"] = 1000 * (whole - start) / (jobs - JOBS_PER_RUN)
    return figures


def imports(options: argparse.Namespace) -> Figures:
    """Import what commands import before they begin; the first time only writes compiled files."""
    commands = {"--help": ["-m", "calgrid", "--help"]}
    for job in ("train", "predict", "calibrate"):
        commands[job] = ["-c", f"import calgrid.jobs.{job}"]
    figures: Figures = {}
    for name, command in commands.items():
        times = [timed([sys.executable, *command])[1] for _ in range(options.repeats + 1)]
        figures[f"processor seconds, {name}"] = min(times[1:])
    return figures


#: samples, classes, and a command of a file, or of two with the same labels
COMMANDS = (
    (10_000, 100, "metrics {file} --bootstrap 0"),
    (50_000, 1_000, "metrics {file} --bootstrap 0"),
    (10_000, 100, "metrics {file}"),
    (200_000, 10, "metrics {file}"),
    (10_000, 100, "calibrate --fit {file} --apply {other} --calibrator ts"),
    (10_000, 100, "compare a={file} b={other} --metrics nll accuracy"),
)


COLUMNS = {"processor seconds": ".1f", "before / now": ".2f"}


def commands(options: argparse.Namespace) -> dict[str, Figures]:
    """Run commands on logits by the code here and by that of the other checkout."""
    figures: dict[str, Figures] = {}
    with tempfile.TemporaryDirectory() as folder:
        for n, k, command in COMMANDS:
            one, other = write_models(Path(folder), n, k)
            words = command.format(file=one, other=other).split()
            call = [sys.executable, "-m", "calgrid", *words]
            pairs = [
                [timed(call, checkout / "src")[1] for checkout in (HOME, options.old)]
                for _ in range(options.repeats)
            ]
            here, there = map(statistics.median, zip(*pairs, strict=True))
            title = f"`{command.format(file='ONE', other='OTHER')}`, {n:,} x {k:,}"
            figures[title] = {"processor seconds": here, "before / now": there / here}
            pages.print_lines(title, figures[title])
    return figures


def write_models(folder: Path, n: int, k: int) -> list[Path]:
    """Write the logits of two overconfident models of the same samples."""
    rng = np.random.default_rng(0)
    truth = 2 * rng.normal(size=(n, k))
    labels = (truth + rng.gumbel(size=(n, k))).argmax(axis=1).astype(np.int32)
    files = [folder / f"{name}.parquet" for name in ("one", "other")]
    for file in files:
        logits = (1.3 * (truth + 0.1 * rng.normal(size=(n, k)))).astype(np.float32)
        write_logits(file, Logits(np.arange(n, dtype=np.int32), labels, logits))
    return files


MEASUREMENTS: Mapping[str, Callable[[argparse.Namespace], Figures]] = {
    "setup": setup,
    "grid": grid,
    "planning": planning,
    "imports": imports,
}


def snakemake(folder: str) -> list[str]:
    """Command that runs the workflow in another folder."""
    return [
        sys.executable,
        "-m",
        "snakemake",
        "--snakefile",
        str(HOME / "Snakefile"),
        "--directory",
        folder,
    ]


def write_grid(path: Path, runs: int) -> int:
    """Write the default study with as many seeds as give about ``runs`` runs; return how many there
    are.
    """
    config = yaml.safe_load((HOME / "config" / "config.yaml").read_text(encoding="utf-8"))
    block = config["grids"][0]
    block["methods"] = block["methods"][:runs]
    seeds = max(runs // len(block["methods"]), 1)
    config["grids"] = [{**block, "seeds": list(range(1, seeds + 1))}]
    path.write_text(yaml.safe_dump(config), encoding="utf-8")
    return seeds * len(block["methods"])


def timed(command: list[str], source: Path = HOME / "src") -> tuple[float, float]:
    """Run a command, which must succeed, with the package in a folder; return its seconds and the
    processor seconds of it and its children.
    """
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": str(source)},
        check=False,
    )
    after, seconds = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter() - begin
    if done.returncode:
        sys.exit(
            f"{done.stdout}\nThe command failed with exit code {done.returncode}: "
            f"{' '.join(command)}"
        )
    return seconds, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    main()
