"""Measure calgrid on grids of many runs: planning, Snakemake's own work a job, files, aggregation,
tables and report.

::

    python benchmarks/scale.py                              all sizes and figures (hours)
    python benchmarks/scale.py --runs 100 --only planning   one size, one figure
    python benchmarks/scale.py --folder f --keep            made-up results for a later call

``planning``     a dry run of the whole grid: seconds and memory of Snakemake, and the share of
                 calgrid in the seconds.
``execution``    the grid really run by Snakemake, with stages that compute nothing
                 (``null_stages.py``): they copy the files of one real run of the default study.
                 Data, manifest and aggregation are real.
``aggregation``  ``calgrid job aggregate`` on the numbers of all runs, which are copies of real ones
                 with random changes.
``tables``, ``figures``, ``report``    these commands, on the result.

A law, a + b n for n runs, is fitted to the processor seconds and the peak memory of aggregation.

The grid has 25 methods and four backbones on the digits, and as many seeds as give the number of
runs; calibrators and shifts are those of the default study, or no shifts with ``--clean``.
Everything is written below ``--folder``.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

import null_stages
import pages
from calgrid.plan.plan import Plan
from calgrid.storage.records import read_record, write_record
from calgrid.study.study import Study
from speed import HOME, Figures

LOSSES = (
    *(
        "ce",
        "brier",
        "ls",
        "ecp",
        "mmce",
        "mmce_w",
        "fl3",
        "flsd53",
        "dfl",
        "adafocal",
        "mdca",
        "mdca_nll",
        "cpc",
    ),
    *("crl", "mbls", "acls", "cals_alm", "fedlas_ls", "fedlas_mbls"),
)
METHODS = [*LOSSES, "mixup", "mit_l", "plp", "tst", "vtst", "maccal"]
BACKBONES = ["resnet8", "resnet18", "resnet20", "resnet110"]
CALIBRATORS = ["none", "ts", "iso", "smart"]
SHIFTS = ["digits_c", "ood/photos"]
PARTS = ("Snakefile", "profiles", "workflow", "config", "envs", "src")
NULL_MAIN = """import sys

sys.path.insert(0, {folder!r})

from null_stages import main

sys.exit(main())
"""


def main() -> None:
    """Measure what was asked for."""
    pages.run(parser(), measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of each measurement by the number of runs."""
    if options.keep and options.folder is None:
        sys.exit("--keep needs --folder")
    if options.folder is not None:
        Path(options.folder).mkdir(parents=True, exist_ok=True)
    found: dict[str, Any] = defaultdict(dict)
    with tempfile.TemporaryDirectory(dir=options.folder) as temporary:
        for runs in options.runs:
            bench = Bench(
                Path(options.folder if options.keep else temporary, str(runs)), runs, options
            )
            for name in options.only:
                found[name][f"{bench.size:,}"] = MEASUREMENTS[name](bench)
                pages.print_lines(f"{name}, {bench.size} runs", found[name][f"{bench.size:,}"])
            if not options.keep:
                shutil.rmtree(bench.root)
    return {"conditions": pages.machine(*options.only), **found}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    cost = {"processor seconds": ".1f", "peak MB": ",.0f"}
    rows: dict[str, dict[str, Any]] = defaultdict(dict)
    stages = {f"{stage}: {name}": (stage, name) for stage in STAGES for name in cost}
    for column, (stage, name) in stages.items():
        for runs, row in figures.get(stage, {}).items():
            rows[runs][column] = row[name]

    def table(name: str, columns: dict[str, str]) -> str:
        return pages.table("runs", figures.get(name, {}), columns)

    return f"""# Many runs

What grids of 100, 1,000 and 10,000 runs cost beside their training.

    python benchmarks/scale.py                     # --help: sizes, single figures, without shifts

25 methods and four backbones on the digits, as many seeds as give the number of runs; calibrators
and shifts of the default study (3,020 numbers a run). The results are made up.

{pages.conditions(figures)}

## Planning

A dry run of the whole grid from nothing.

{table("planning", PLANNING)}

## Execution

Null stages (`benchmarks/null_stages.py`) copy the files of one real run in place of training,
prediction and calibration; all else is real.

{table("execution", EXECUTION)}

So Snakemake takes 0.14 processor seconds a job; 0.16 on an AMD EPYC, about 0.25 on the Intel Xeon
under load.

## Aggregation

`calgrid job aggregate`, one process, a quarter of the runs in each condition (protocol, data set
and backbone); 3,544 numbers and 247 rows of resamples a run.

{table("aggregation", {"rows of metrics": ",", **cost})}

- For n runs: {law(figures.get("aggregation", {}))}, which is 1.6 MB for each run of a
  condition. The job requests twice this memory (`plan/resources.py`), and four processes
  from 500 runs on.
- 10,000 runs, before there were resamples (2026-11-22, nothing else running): 47 and 54 s on the
  clock with two processes (354 and 359 MB each), 83 s with one (450 MB), the same bytes; 30,200,000
  rows, `metrics.parquet` 232 MB.

## Tables, figures, report

{pages.table("runs", rows, {column: cost[name] for column, (_, name) in stages.items()})}
"""


STAGES = ("tables", "figures", "report")
PLANNING = {
    "jobs": ",",
    "processor seconds": ".1f",
    "seconds": ".0f",
    "peak MB": ".0f",
    "calgrid's specifications, seconds": ".1f",
}
EXECUTION = {
    "seconds": ".0f",
    "processor seconds a job": ".3f",
    "processor seconds of the null stage alone": ".3f",
    "dry run of the finished grid, seconds": ".1f",
    "files a run": ".0f",
    "MB a run": ".1f",
    "MB of .snakemake": ".0f",
}


def law(sizes: Mapping[str, Figures]) -> str:
    """Lines through processor seconds and peak memory by number of runs, with the least relative
    squares.
    """
    said = []
    for name in ("processor seconds", "peak MB"):
        points = [
            (int(n.replace(",", "")), float(figures[name]))
            for n, figures in sizes.items()
            if name in figures
        ]
        if len(points) > 1:
            n, value = np.array(points).T
            slope, start = np.polyfit(n, value, 1, w=1 / value)
            said.append(f"{name} {start:.3g} {'-' if slope < 0 else '+'} {abs(slope):.2g} n")
    return ", ".join(said)


def parser() -> argparse.ArgumentParser:
    """Options of the command line."""
    options = argparse.ArgumentParser(description="Measure grids of many runs.")
    options.add_argument(
        "--runs", nargs="+", type=int, default=[100, 1000, 10000], help="sizes (100 1000 10000)"
    )
    options.add_argument(
        "--only", nargs="+", choices=list(MEASUREMENTS), default=list(MEASUREMENTS)
    )
    options.add_argument(
        "--execute-up-to", type=int, default=1000, metavar="RUNS", help="largest grid that is run"
    )
    options.add_argument(
        "--cores", type=int, default=1, help="cores for the grid that is run, and for stages (1)"
    )
    options.add_argument(
        "--clean", action="store_true", help="no shifts: 120 numbers a run instead of 3,020"
    )
    options.add_argument(
        "--folder", type=Path, help="where to put the files: several GB (a temporary folder)"
    )
    options.add_argument(
        "--keep",
        action="store_true",
        help="leave the files in --folder, and take those that are there",
    )
    return options


class Bench:
    """A copy of the workflow with a grid of a given size."""

    def __init__(self, root: Path, runs: int, options: argparse.Namespace) -> None:
        self.root, self.options = root, options
        root.mkdir(parents=True, exist_ok=True)
        for part in PARTS:
            shutil.rmtree(root / part, ignore_errors=True)
            copy = shutil.copytree if (HOME / part).is_dir() else shutil.copy
            copy(HOME / part, root / part)
        shifts = [] if options.clean else SHIFTS
        block = {
            "protocol": "digits",
            "datasets": ["digits"],
            "calibrators": CALIBRATORS,
            "shifts": shifts,
        }
        one = {
            "study": "template",
            "grids": [{**block, "backbones": ["resnet8"], "methods": ["ce"], "seeds": [1]}],
        }
        (root / "one.yaml").write_text(yaml.safe_dump(one), encoding="utf-8")
        seeds = list(range(1, max(runs // (len(METHODS) * len(BACKBONES)), 1) + 1))
        methods = METHODS[: max(runs // len(BACKBONES), 1)]
        self.config = {
            "study": "large",
            "grids": [{**block, "backbones": BACKBONES, "methods": methods, "seeds": seeds}],
        }
        (root / "large.yaml").write_text(yaml.safe_dump(self.config), encoding="utf-8")
        self.plan = Plan(Study(self.config, root))
        self.size = len(self.plan.study.evaluations)
        self.study = root / "results" / "large"

    def snakemake(self, config: str, *arguments: str) -> Figures:
        """Run Snakemake on the copy."""
        command = [
            sys.executable,
            "-m",
            "snakemake",
            "--configfile",
            config,
            "-q",
            "all",
            "--nolock",
        ]
        return self.call([*command, "--cores", str(self.options.cores), *arguments])

    def call(self, command: list[str]) -> Figures:
        """Run a command in the copy, which must succeed; its seconds, processor seconds and peak
        memory.
        """
        env = {**os.environ, "PYTHONPATH": str(self.root / "src"), "OMP_NUM_THREADS": "1"}
        env[null_stages.TEMPLATE_VARIABLE] = str(self.root / "template")
        begin = time.perf_counter()
        with (self.root / "output.txt").open("wb") as output:
            process = subprocess.Popen(
                command, cwd=self.root, env=env, stdout=output, stderr=subprocess.STDOUT
            )
            _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(
                f"{(self.root / 'output.txt').read_text()}\nThis failed: {' '.join(command)[:300]}"
            )
        cpu = usage.ru_utime + usage.ru_stime
        return {
            "seconds": time.perf_counter() - begin,
            "processor seconds": cpu,
            "peak MB": usage.ru_maxrss / 1024,
        }

    def make_template(self) -> None:
        """Run one real run, and put null stages into the copy."""
        if (self.root / "template").exists():
            return
        self.snakemake("one.yaml", "results/template/metrics.parquet")
        manifest = read_record(self.root / "results/template/manifest.json")
        (run,) = manifest["runs"]
        for job in ("train", "predict", "calibrate"):
            shutil.copytree(self.root / run[job], self.root / "template" / job)
        for made in ("results/runs", "results/template", ".snakemake"):
            shutil.rmtree(self.root / made)
        null_main = NULL_MAIN.format(folder=str(HOME / "benchmarks"))
        (self.root / "src/calgrid/__main__.py").write_text(null_main, encoding="utf-8")

    def make_results(self) -> None:
        """Write the files of all runs that aggregation and report read, unless the grid was run."""
        if (self.study / "manifest.json").exists():
            return
        self.make_template()
        template = self.root / "template"
        for job in self.plan.jobs:
            folder = self.root / job.folder
            if job.kind == "train":
                null_stages.train(template, job.spec, folder, os.link)
            elif job.kind == "predict":
                null_stages.predict(template, job.spec, folder, os.link)
            elif job.kind == "calibrate":
                null_stages.calibrate(template, job.spec, folder)

    def record(self, name: str) -> str:
        """Record of files of the study."""
        return self.plan.stage(name).result

    def write_plan(self) -> str:
        """Write the plan of the study, as Snakemake does before its jobs."""
        write_record(self.root / self.plan.path, self.plan.file())
        return self.plan.path

    def stage(self, command: str) -> Figures:
        """Run a stage after calibration."""
        arguments = ["--plan", self.write_plan(), "--out", self.record(command)]
        arguments += ["--threads", str(self.options.cores)]
        return self.call([sys.executable, "-m", "calgrid", "job", command, *arguments])


# measurements
# --------------------------------------------------------------------------------------------------


def planning(bench: Bench) -> Figures:
    """Plan the grid from nothing."""
    figures = bench.snakemake("large.yaml", "-n")
    begin, plan = time.process_time(), Plan(Study(bench.config, bench.root))
    plan.file()
    return {
        "jobs": 3 * bench.size,
        **figures,
        "calgrid's specifications, seconds": time.process_time() - begin,
    }


def execution(bench: Bench) -> Figures:
    """Run the grid to its metrics with null stages."""
    if bench.size > bench.options.execute_up_to:
        return {"left out": f"more than {bench.options.execute_up_to} runs"}
    bench.make_template()
    figures = bench.snakemake("large.yaml", "results/large/metrics.parquet")
    alone = _null_seconds(bench)
    jobs = 3 * bench.size
    files = [path for path in (bench.root / "results").rglob("*") if path.is_file()]
    again = bench.snakemake("large.yaml", "-n", "results/large/metrics.parquet")
    return {
        "jobs": jobs,
        **figures,
        **{f"{clock} a job": figures[clock] / jobs for clock in alone},
        **{f"{clock} of the null stage alone": value for clock, value in alone.items()},
        "dry run of the finished grid, seconds": again["seconds"],
        "files a run": len(files) / bench.size,
        "MB a run": sum(path.stat().st_size for path in files) / 1e6 / bench.size,
        "MB of .snakemake": _size(bench.root / ".snakemake") / 1e6,
    }


def _null_seconds(bench: Bench, repeats: int = 5) -> Figures:
    """Mean seconds and processor seconds of the null stages of a run as own processes."""
    key = next(iter(bench.plan.study.evaluations))
    folders = {
        "train": bench.plan.train(key).folder,
        "predict": bench.plan.predicted(key).folder,
        "calibrate": bench.plan.calibrate(key).folder,
    }
    plan, calls = bench.write_plan(), []
    for _ in range(repeats):
        for name, folder in folders.items():
            shutil.rmtree(bench.root / folder)
            command = [
                sys.executable,
                "-m",
                "calgrid",
                "job",
                name,
                "--plan",
                plan,
                "--out",
                folder,
            ]
            calls.append(bench.call(command))
    return {
        clock: sum(call[clock] for call in calls) / len(calls)
        for clock in ("seconds", "processor seconds")
    }


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def aggregation(bench: Bench) -> Figures:
    """Aggregate the numbers of all runs."""
    bench.make_results()
    figures = bench.stage("aggregate")
    rows = read_record(bench.root / bench.record("aggregate"))["rows"]
    sizes = {
        f"MB of {name}": (bench.study / f"{name}.parquet").stat().st_size / 1e6
        for name in ("metrics", "summary")
    }
    return {**figures, **{f"rows of {name}": count for name, count in rows.items()}, **sizes}


def tables(bench: Bench) -> Figures:
    """Make the tables of the aggregated study."""
    _after(bench, "metrics.parquet", aggregation)
    return bench.stage("tables")


def figures(bench: Bench) -> Figures:
    """Draw the figures of the aggregated study."""
    _after(bench, "metrics.parquet", aggregation)
    return bench.stage("figures")


def report(bench: Bench) -> Figures:
    """Make the report of tables and figures."""
    _after(bench, "tables/index.json", tables)
    _after(bench, "figures/index.json", figures)
    found = bench.stage("report")
    return {**found, "MB of the report": (bench.study / "report.html").stat().st_size / 1e6}


def _after(bench: Bench, made: str, make: Callable[[Bench], Figures]) -> None:
    if not (bench.study / made).exists():
        make(bench)


MEASUREMENTS: Mapping[str, Callable[[Bench], Figures]] = {
    "planning": planning,
    "execution": execution,
    "aggregation": aggregation,
    "tables": tables,
    "figures": figures,
    "report": report,
}


if __name__ == "__main__":
    main()
