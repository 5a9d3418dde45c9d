"""Measure calibration at the size of the ImageNet family, and the memory of jobs beside what they
ask for.

::

    # calibration at full size, and a small trial
    python benchmarks/full_size.py
    python benchmarks/full_size.py --val 500 --test 500 --rows 500
    # costs of every calibrator, and jobs of a study that was run here
    python benchmarks/full_size.py --only costs
    python benchmarks/full_size.py --only jobs --configfile config/config.yaml

``costs``      seconds of fit, prediction, metrics and bootstrap of every calibrator, all in one
               process, and the peak of its memory; ``--sizes 25000x1000`` is that of ImageNet.
``calibrate``  the job ``calibrate`` of a run of ``config/papers/smart/study.yaml`` with its nine
               calibrators, on made-up logits (1,000 classes, 2,048 features) of val, test and some
               corruptions. It is
               killed once with SIGKILL and goes on; ``--undisturbed`` also runs it without, and
               compares the bytes.
``jobs``       of a finished study below the working directory, the memory that jobs ask for and the
               peaks in their records.

Memory of ``calibrate`` is the resident memory of its processes together, looked at ten times a
second.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import yaml

import pages
from calgrid import metrics
from calgrid.calibrators import build_calibrator
from calgrid.calibrators.base import Calibrator
from calgrid.components import registry
from calgrid.errors import CalgridError
from calgrid.jobs.scoring import FITS
from calgrid.plan.plan import Plan
from calgrid.plan.resources import Resources
from calgrid.storage.arrays import write_head
from calgrid.storage.logits import Logits, write_logits
from calgrid.storage.records import (
    FILES,
    PREDICT,
    head_file,
    listed,
    logits_file,
    read_record,
    sha256_of,
    write_record,
)
from calgrid.study.study import Study
from posthoc import peak_mb
from speed import HOME

RUN = "published/imagenet/imagenet_resnet50/ce/seed1"
#: mean of the gamma distribution that says how clearly a picture shows its class: about 78 %
#: accuracy, and 45 %
CLEAR, CORRUPTED = 0.48, 0.22
#: rows x classes of the fits that are measured, and width of the features
COST_SIZES = ("2000x10", "2000x100", "2000x1000")
COST_FEATURES = 512
LOOKS_A_SECOND = 10
#: the job in a process of its own; arguments: specification, logits, folder of the result, threads
CALIBRATE_RUN = """
import json, sys
from pathlib import Path
from calgrid.jobs.calibrate import run
from calgrid.storage.publish import Call
spec, predicted, out, threads = sys.argv[1:]
reads = (Path(predicted, "predict.json"),)
run(Call(json.loads(Path(spec).read_text()), Path(out), reads, threads=int(threads)))
"""
#: resident memory of the Snakemake that runs a job on a node
NODE_MB = 200
ATTEMPTS = {
    "calibrators": "",
    "processes": "",
    "first attempt MB": ",.0f",
    "second attempt MB": ",.0f",
}
#: figures of a calibrator, from :func:`cost`
COSTS = ("fit s", "prediction s", "metrics s", "bootstrap s")


def main() -> None:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description="Measure calibration at full size, and what jobs ask for."
    )
    parser.add_argument("--only", nargs="+", choices=list(MEASUREMENTS), default=["calibrate"])
    parser.add_argument(
        "--configfile", type=Path, default=HOME / "config/config.yaml", help="study of the jobs"
    )
    parser.add_argument(
        "--folder", type=Path, help="where to put the files: some GB (a temporary folder)"
    )
    parser.add_argument("--threads", type=int, default=1, help="processes of the stage (1)")
    parser.add_argument("--conditions", type=int, default=3, help="corruptions (3)")
    parser.add_argument(
        "--draws", type=int, default=1, help="draws of the rows that fit, and seeds (1)"
    )
    parser.add_argument("--val", type=int, default=10_000, help="rows of val (10000)")
    parser.add_argument("--test", type=int, default=40_000, help="rows of test (40000)")
    parser.add_argument("--rows", type=int, default=40_000, help="rows of a corruption (40000)")
    parser.add_argument("--features", type=int, default=2048, help="width of the features (2048)")
    parser.add_argument(
        "--kill-after", type=int, default=3, metavar="N", help="kill when N results are kept (3)"
    )
    parser.add_argument(
        "--undisturbed",
        action="store_true",
        help="also run without the kill, and compare the bytes",
    )
    parser.add_argument(
        "--ids", nargs="+", metavar="ID", help="calibrators that are measured (all)"
    )
    parser.add_argument(
        "--sizes", nargs="+", metavar="NxK", default=COST_SIZES, help="rows x classes of costs"
    )
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of what was asked for."""
    found: dict[str, Any] = {}
    for name in options.only:
        print(f"\n## {name}\n", flush=True)
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            found[name] = MEASUREMENTS[name](Path(folder), options)
    return {"conditions": pages.machine(*options.only), **found}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    peaks = figures.get("jobs", {})
    studies = dict.fromkeys((study for row in peaks.values() for study in row), ",")
    fits = "\n".join(
        f"- {size}: {', '.join(f'`{id}` {fit:.4g}' for id, fit in by_seconds(row))}."
        for size, row in figures.get("costs", {}).items()
    )
    return f"""# Calibration at full size, and what jobs ask for

Calibrations of the size of ImageNet, on made-up logits.

    python benchmarks/full_size.py                           # --only calibrate, --only costs
    python benchmarks/full_size.py --only jobs --configfile STUDY    # in the folder of the study

{pages.conditions(figures)}

## Memory of jobs

The largest job of each kind, with {NODE_MB} MB for the Snakemake on a node. The constants of
[resources.py](../src/calgrid/plan/resources.py) are at least twice these peaks.

{pages.table("peak MB", peaks, studies)}

`digits`: the default study, 27 runs of `resnet8`. `photographs`: `resnet9`, 60,000 images,
45,000 of them for training, six runs. `real_logits`: five models, 5,000 x 100 logits.

- Imports of 20,000 x 1,000 logits, not from a study, without the 200 MB: `.npz` 303 MB,
  probabilities in float32 681, CSV 823, lists in Parquet 445, `.pt` 759 (with PyTorch).
- Not measured: the CUDA context, for which jobs on a GPU ask 4,000 MB more; large trainings,
  predictions and probes.

## A calibration that is killed

1,000 classes, 2,048 features, one draw, 200 resamples. SIGKILL came when three results were kept,
which the second attempt took.

{pages.table("val + test + corruptions", figures.get("calibrate", {}), ATTEMPTS)}

With 5,000 + 5,000 + 2 x 8,000 rows (peak 990 MB) all results have the bytes of an undisturbed run;
at 25,000 rows bytes were not compared. In the first, older than predictions of some rows at a time,
`procal_dr` took 40 % of the seconds, `fc` 31, `gc_ts` 12, all others 5 or less.

## Calibrators

    python benchmarks/full_size.py --only costs --sizes 25000x1000 --ids none ts ts_mix \\
        ts_ece_grid ets tva_ts cts hts pts smart vs svs hb hb_ova bbq iso iso_ova irm spline sms

Seconds of the longest fits, by rows and classes:

{fits}

At 25,000 x 1,000 all others of the command take 1.45 s or less, predictions 1.62. In all 175 s (146
without `sms`): fits 101 s, bootstraps 56 s (1,000 resamples, 2.29 to 3.11 s each), metrics 0.15 to
0.20 s each; peak of the process 1.7 GB. In another run the prediction of `kernel` took 28 s.
"""


def by_seconds(row: dict[str, dict[str, float]]) -> list[tuple[str, float]]:
    """Calibrators whose fits take longest, with their seconds."""
    fits = [(id, found["fit s"]) for id, found in row.items()]
    return sorted(fits, key=lambda one: -one[1])[:10]


# logits
# --------------------------------------------------------------------------------------------------


class Network:
    """A made-up network: features that are not negative, and a head, as that of a ResNet-50 on
    ImageNet.
    """

    def __init__(self, classes: int = 1000, features: int = 2048) -> None:
        draw = np.random.default_rng(7).normal(size=(classes, features))
        self.directions = (draw * 2.7 / features**0.5).astype(np.float32)
        self.weight, self.bias = 1.5 * self.directions, np.zeros(classes, dtype=np.float32)

    def rows(
        self, count: int, clarity: float, seed: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Logits (N, K), features (N, d) in float32, labels (N,) int32, of made-up pictures."""
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, len(self.bias), count).astype(np.int32)
        features = rng.standard_normal((count, self.weight.shape[1]), dtype=np.float32)
        features *= 0.75
        features -= 0.1
        for begin in range(0, count, 4096):
            block = slice(begin, begin + 4096)
            clear = rng.gamma(1.6, clarity / 1.6, size=(len(labels[block]), 1)).astype(np.float32)
            features[block] += 7 * clear * self.directions[labels[block]]
        np.maximum(features, 0, out=features)
        return features @ self.weight.T, features, labels


# the stage at full size
# -----------------------------------------------------------------------------------------------


def calibrate(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Memory of both attempts; prints their seconds, and the share of each calibrator."""
    spec = specification(options)
    run, out = folder / "predict", folder / "calibrate"
    make_run(run, spec, options)
    size = sum(path.stat().st_size for path in run.rglob("*.parquet")) / 1e9
    rows = f"{options.val:,} + {options.test:,} + {options.conditions} x {options.rows:,}"
    pages.print_lines("size", {"rows": rows, "GB": size})
    killed = evaluate(spec, run, out, options, kill_after=options.kill_after)
    pages.print_lines(
        "first attempt, killed",
        {"seconds": killed.seconds, "results kept": killed.kept, "peak MB": killed.peak},
    )
    ended = evaluate(spec, run, out, options)
    pages.print_lines("second attempt", {"seconds": ended.seconds, "peak MB": ended.peak})
    record = read_record(out / "calibrate.json")
    pages.print_lines("share of the seconds, %", shares(record))
    if options.undisturbed:
        shutil.rmtree(folder / FITS)
        again = evaluate(spec, run, folder / "undisturbed", options)
        pages.print_lines("undisturbed", {"seconds": again.seconds, "peak MB": again.peak})
        for path in sorted(out.glob("*.parquet")):
            equal = sha256_of(path) == sha256_of(folder / "undisturbed" / path.name)
            print(f"  {path.name}: {'same bytes' if equal else 'OTHER BYTES'}")
    names = ", ".join(entry["name"] for entry in spec["calibrators"])
    of = {"calibrators": names, "processes": options.threads}
    return {rows: of | dict(zip(list(ATTEMPTS)[2:], (killed.peak, ended.peak), strict=True))}


def specification(options: argparse.Namespace) -> dict[str, Any]:
    """The calibration of a run of SMART's tables, with the draws that were asked for."""
    config = yaml.safe_load((HOME / "config/papers/smart/study.yaml").read_text(encoding="utf-8"))
    plan = Plan(Study({**config, "data_root": str(HOME)}, HOME))
    (key,) = (key for key in plan.study.runs if key.path == RUN)
    spec: dict[str, Any] = json.loads(json.dumps(plan.calibrate(key).spec))
    draws = spec["draws"][: options.draws]
    spec["calibrators"] = [
        each for each in spec["calibrators"] if each["id"] in (options.ids or [each["id"]])
    ]
    for entry in spec["calibrators"]:
        entry["seeds"] = entry["seeds"][: options.draws]
    return {**spec, "draws": draws}


def make_run(run: Path, spec: dict[str, Any], options: argparse.Namespace) -> None:
    """Write logits as the stage ``predict`` does, with their record."""
    network, (checkpoint,) = Network(features=options.features), spec["checkpoints"]

    def part(name: str, count: int, clarity: float, seed: int, **columns: Any) -> Logits:
        logits, features, labels = network.rows(count, clarity, seed)
        index = np.arange(count, dtype=np.int32)
        metadata = {"fingerprint": spec["logits"][name]}
        return Logits(index, labels, logits, features=features, metadata=metadata, **columns)

    def corrupted(number: int) -> Logits:
        names = np.full(options.rows, f"corruption_{number}")
        severity = np.full(options.rows, 5, dtype=np.int8)
        return part(family, options.rows, CORRUPTED, 10 + number, shift=names, severity=severity)

    (family,) = spec["families"]
    write_logits(run / logits_file(checkpoint, "val"), part("val", options.val, CLEAR, 1))
    write_logits(run / logits_file(checkpoint, "test"), part("test", options.test, CLEAR, 2))
    write_logits(run / logits_file(checkpoint, family), map(corrupted, range(options.conditions)))
    write_head(run / head_file(checkpoint), network.weight, network.bias, spec["run_fingerprint"])
    names = [str(path.relative_to(run)) for path in sorted(run.rglob("*.*")) if path.is_file()]
    write_record(run / PREDICT, {FILES: listed(run, names)})


class Attempt:
    """A running stage, watched."""

    def __init__(self, command: list[str]) -> None:
        self.begin, self.peak, self.kept = time.monotonic(), 0.0, 0
        self.process = subprocess.Popen(command, start_new_session=True)

    def look(self) -> None:
        """Note the memory of the process and of its children."""
        self.peak = max(self.peak, resident_mb(self.process.pid))

    @property
    def seconds(self) -> float:
        """Seconds since the start, or until the end."""
        return self.end - self.begin


def evaluate(
    spec: dict[str, Any],
    run: Path,
    out: Path,
    options: argparse.Namespace,
    kill_after: int | None = None,
) -> Attempt:
    """Run the stage, and kill it with SIGKILL when so many results are kept."""
    path = run.parent / "spec.json"
    path.write_text(json.dumps(spec), encoding="utf-8")
    arguments = [str(path), str(run), str(out), str(options.threads)]
    attempt = Attempt([sys.executable, "-c", CALIBRATE_RUN, *arguments])
    while attempt.process.poll() is None:
        attempt.look()
        attempt.kept = len(list(out.with_name(f"{out.name}.partial").glob("kept-*.json")))
        if kill_after is not None and attempt.kept >= kill_after:
            os.killpg(attempt.process.pid, signal.SIGKILL)
        time.sleep(1 / LOOKS_A_SECOND)
    attempt.end = time.monotonic()
    if kill_after is None and attempt.process.returncode:
        sys.exit("The stage failed.")
    return attempt


def resident_mb(pid: int) -> float:
    """Resident memory of a process and of all that it has started, in MB."""
    total = 0.0
    for process in tree(pid):
        try:
            pages = int(Path(f"/proc/{process}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):  # it has ended
            continue
        total += pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    return total


def tree(pid: int) -> list[int]:
    """A process and all that it has started."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return []
    return [pid, *(each for child in children for each in tree(int(child)))]


def shares(record: dict[str, Any]) -> dict[str, str]:
    """Share of each calibrator in the seconds of all, in %."""
    seconds: dict[str, float] = defaultdict(float)
    for part in record["chunks"]:
        seconds[part["calibrator"]] += part["seconds"]
    return {id: f"{100 * each / sum(seconds.values()):.0f}" for id, each in seconds.items()}


# costs
# --------------------------------------------------------------------------------------------------


def costs(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Processor seconds of fits, predictions, metrics and intervals, which it also prints."""
    pages.print_row(["calibrator", "N x K", *COSTS, "MB"])
    pages.print_row(["---", "---", *["---:"] * 5])
    found: dict[str, Any] = defaultdict(dict)
    for size in options.sizes:
        rows, classes = (int(part) for part in size.split("x"))
        network = Network(classes, COST_FEATURES)
        samples = network.rows(rows, CLEAR, 1)
        for id in options.ids or registry.descriptions("calibrator"):
            try:
                seconds = cost(build_calibrator(id), network, *samples)
            except CalgridError as error:
                print(f"{id} at {classes} classes: {error}")
                continue
            cells = [f"{value:.2f}" for value in seconds]
            name = f"{rows:,} x {classes:,}"
            pages.print_row([id, name, *cells, f"{peak_mb():.0f}"])
            found[name][id] = dict(zip(COSTS, seconds, strict=True))
    return found


def cost(
    calibrator: Calibrator,
    network: Network,
    logits: np.ndarray,
    features: np.ndarray,
    labels: np.ndarray,
) -> list[float]:
    """Processor seconds of fit, prediction, all metrics, and their intervals."""
    head = network.weight, network.bias
    fit, _ = timed(lambda: calibrator.fit(logits, labels, features, head))
    prediction, probs = timed(lambda: calibrator.predict_proba(logits, features))
    scores, _ = timed(lambda: metrics.evaluate(probs, labels))
    resamples, _ = timed(lambda: metrics.bootstrap(probs, labels))
    return [fit, prediction, scores, resamples]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    """Processor seconds of one call, and its result."""
    begin = time.process_time()
    result = function()
    return time.process_time() - begin, result


# jobs
# --------------------------------------------------------------------------------------------------


def jobs(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Largest peak of each rule of a finished study; prints it beside what the job asks for.

    A cluster counts the Snakemake on the node too, for which every job asks.
    """
    study = Study(yaml.safe_load(options.configfile.read_text(encoding="utf-8")), HOME)
    needs, peaks_of = Resources(study, gpus=0), defaultdict(list)
    for job in Plan(study).jobs:
        if Path(job.folder, job.record).is_file():
            peak = read_record(Path(job.folder, job.record))["peak_memory_mb"] + NODE_MB
            peaks_of[job.kind].append((peak, job.about))
    pages.print_row(["job", "jobs", "asked MB", f"peak MB, {NODE_MB} of them Snakemake", "share %"])
    pages.print_row(["---", *["---:"] * 4])
    for rule, peaks in peaks_of.items():
        peak, about = max(peaks)
        asked = needs.memory("prepare" if rule == "data" else rule)(wildcards(about), 1)
        cells = [str(len(peaks)), f"{asked:.0f}", f"{peak:.0f}", f"{100 * peak / asked:.0f}"]
        pages.print_row([f"{rule}, {about}", *cells])
    return {rule: {study.config.study: max(peaks)[0]} for rule, peaks in peaks_of.items()}


def wildcards(about: str) -> SimpleNamespace:
    """Wildcards of a job of a run, from the path of the run, or of a data set."""
    run, _, seed = about.rpartition("/seed")
    names = ("protocol", "dataset", "backbone", "method")
    return SimpleNamespace(
        image_set=about, seed=seed, **dict(zip(names, run.split("/"), strict=False))
    )


MEASUREMENTS: dict[str, Callable[[Path, argparse.Namespace], dict[str, Any]]] = {
    "costs": costs,
    "calibrate": calibrate,
    "jobs": jobs,
}


if __name__ == "__main__":
    main()
