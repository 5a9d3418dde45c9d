"""Is all installed, do tests pass, is an interrupted run the same, how far is it from the CPU?"""

import argparse
import functools
import hashlib
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from kit import HOME, Figures, Piece, Runs, Wave, command, device, empty, environment
from wheels import missing

from calgrid.storage.records import HISTORY, MODEL, RunKey, logits_file
from calgrid.training.trainer import RESUME_FILE

#: largest difference of logits of one network on GPU and CPU, relative to their spread (fp32
#: without TF32)
TOLERANCE = 1e-4
#: largest difference of the mean training loss of the first epoch, relative
LOSS_TOLERANCE = {"fp32": 1e-2, "bf16": 5e-2}
BACKBONE = "resnet20"
PLAIN = {
    "base": "evening",
    "deterministic": True,
    "augmentation": {"crop_padding": 0, "flip": False},
    "schedule": {"name": "constant", "warmup_epochs": 0},
    "optimizer": {"lr": 0.01},
    "batch_size": 64,
}
#: lines of ``pytest -v``, of one process and of several, and of its summary for what has no other
OUTCOMES = (
    re.compile(r"(?P<name>tests/\S.*?) (?P<outcome>PASSED|FAILED|ERROR|SKIPPED)\b"),
    re.compile(r"\[gw\d+\] \[ *\d+%\] (?P<outcome>[A-Z]+) (?P<name>tests/.*\S)"),
    re.compile(r"(?P<outcome>ERROR) (?P<name>tests/[^ :]+)(?: - |$)"),
)
NOT_IN_MAKE_TEST = "not (workflow or slow or slurm)"


def waves(options: argparse.Namespace) -> list[Wave]:
    """Pieces of this part."""
    marked = sorted(
        path.relative_to(HOME)
        for path in (HOME / "tests").rglob("test_*.py")
        if "mark.gpu" in path.read_text()
    )
    every = ("tests/training/test_schedule.py",) if options.rehearse else ("-n", "8", "tests")
    checks = [Piece("make test", 480, tests(*every, "-m", NOT_IN_MAKE_TEST))]
    for path in marked:
        checks.append(Piece(f"CUDA tests: {path.name}", 240, tests(path, "-m", "gpu")))
    for precision in ("fp32", "bf16"):
        parts = {"interrupted": interrupted, "against the CPU": against_cpu}
        for name, measure in parts.items():
            checks.append(Piece(f"{name}: {precision}", 180, functools.partial(measure, precision)))
    return [
        (2, [Piece("packages", 30, packages), Piece("data", 120, prepared)]),
        (4, checks),
    ]


def packages(options: argparse.Namespace) -> Iterator[Figures]:
    """Packages that calgrid needs and that are not installed."""
    lacking = missing()
    yield {"ok": not lacking, "missing": lacking}


def prepared(options: argparse.Namespace) -> Iterator[Figures]:
    """Prepare data for both copies of the runs."""
    empty(options.work)
    for runs in copies(options):
        runs.prepare()
    yield {"ok": True}


def copies(options: argparse.Namespace) -> tuple[Runs, Runs]:
    """The same runs twice."""
    epochs = 2 if options.rehearse else 8
    crops = {"augmentation": {"crop_padding": 4, "flip": True}}
    protocols = {}
    for precision in ("fp32", "bf16"):
        protocols[f"exact_{precision}"] = {**PLAIN, **crops, "epochs": epochs}
        protocols[f"one_{precision}"] = {**PLAIN, "epochs": 1}
        for kind in ("exact", "one"):
            protocols[f"{kind}_{precision}"]["precision"] = precision
    if options.pictures is None:  # 8x8 pixels
        for protocol in protocols.values():
            padding = min(1, protocol["augmentation"]["crop_padding"])
            protocol["augmentation"] = {"crop_padding": padding, "flip": False}
            protocol["batch_size"] = 20
    grids = [
        {"protocol": name, "backbones": [BACKBONE], "methods": ["ce"], "seeds": [1]}
        for name in protocols
    ]
    subset = 500 if options.rehearse else 5000
    first, second = (Runs(options, protocols, grids, subset, copy) for copy in ("", "_again"))
    return first, second


def tests(*arguments: str | Path) -> functools.partial[Iterator[Figures]]:
    """Measure of a piece that runs tests."""
    return functools.partial(_tests, arguments)


def _tests(arguments: tuple[str | Path, ...], options: argparse.Namespace) -> Iterator[Figures]:
    """Outcomes of tests, with the names of those that fail, as soon as they are known."""
    call = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider"]
    call += ["--continue-on-collection-errors", *map(str, arguments)]
    process = subprocess.Popen(call, cwd=HOME, stdout=subprocess.PIPE, text=True, env=environment())
    outcomes: dict[str, str] = {}
    told = time.monotonic()
    for line in process.stdout or ():
        print(line, end="", flush=True)
        if found := next(filter(None, (form.match(line) for form in OUTCOMES)), None):
            outcomes.setdefault(found["name"], found["outcome"])
            if time.monotonic() > told + 1:
                told = time.monotonic()
                yield counted(outcomes)
    yield {**counted(outcomes), "ok": process.wait() in (0, 5)}  # 5: no test was selected


def counted(outcomes: dict[str, str]) -> Figures:
    """Numbers of outcomes, and the tests that fail."""
    failed = [name for name, outcome in outcomes.items() if outcome in ("FAILED", "ERROR")]
    return {**Counter(outcomes.values()), "failed": failed}


def interrupted(precision: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Train once without and once with an interruption."""
    runs, again = copies(options)
    yield resumed(runs, again, runs.key(f"exact_{precision}", BACKBONE, "ce"))


def resumed(runs: Runs, again: Runs, key: RunKey) -> Figures:
    """Train once without and once with an interruption, and compare all bytes that are results."""
    runs.calgrid(*runs.train_command(key))
    process = subprocess.Popen(
        command([*again.train_command(key), "--resume-every", "0"]),
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    made = again.trained(key)
    state = made.with_name(f"{made.name}.partial") / RESUME_FILE
    while process.poll() is None and not state.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    stopped = process.wait() != 0
    again.calgrid(*again.train_command(key))
    equal = {
        file: digest(runs.trained(key) / file) == digest(again.trained(key) / file)
        for file in (MODEL, HISTORY)
    }
    return {"ok": stopped and all(equal.values()), "interrupted": stopped, "equal": equal}


def against_cpu(precision: str, options: argparse.Namespace) -> Iterator[Figures]:
    """Compare an epoch of training, and the logits of a network, on this device and the CPU."""
    runs, on_cpu = copies(options)
    key = runs.key(f"one_{precision}", BACKBONE, "ce")
    losses = []
    for made, on in ((runs, device()), (on_cpu, "cpu")):
        made.calgrid(*made.train_command(key, on))
        losses.append(pq.read_table(made.trained(key) / HISTORY)["train_loss"][0].as_py())
        if made is on_cpu:  # both predict with the network of this device
            shutil.copytree(runs.trained(key), on_cpu.trained(key), dirs_exist_ok=True)
        made.calgrid(*made.predict_command(key, on))
    here, there = losses
    loss = abs(here - there) / abs(there)
    logits, reference = (
        scores(made.predicted(key) / logits_file("last", "test")) for made in (runs, on_cpu)
    )
    difference = float(np.abs(logits - reference).max() / reference.std())
    # logits are exported in fp32
    ok = loss <= LOSS_TOLERANCE[precision] and difference <= TOLERANCE
    yield {
        "ok": ok,
        "loss_difference": loss,
        "logit_difference": difference,
        "tolerance": [LOSS_TOLERANCE[precision], TOLERANCE],
    }


def scores(path: Path) -> np.ndarray:
    """Logits ``(N, K)`` of a file."""
    return np.array(pq.read_table(path, columns=["logits"])["logits"].to_pylist())


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
