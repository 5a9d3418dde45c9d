"""Do CUDA tests pass, is an interrupted run the same run, how far are fp32 and bf16 from the CPU?

::

    python benchmarks/gpu/correctness.py --pictures FOLDER --out OUT
"""

import hashlib
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
from kit import HOME, Runs, command, device, empty, environment, keep, parser

from calgrid.storage.layout import RunKey, logits_file
from calgrid.storage.records import HISTORY, MODEL
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


def main() -> None:
    """Run all checks; the exit code is 1 where one fails."""
    options = parser(__doc__, 9).parse_args()
    empty(options.work)
    epochs = 2 if options.rehearse else 8
    protocols = {
        "exact_fp32": {
            **PLAIN,
            "epochs": epochs,
            "precision": "fp32",
            "augmentation": {"crop_padding": 4, "flip": True},
        },
        "exact_bf16": {
            **PLAIN,
            "epochs": epochs,
            "precision": "bf16",
            "augmentation": {"crop_padding": 4, "flip": True},
        },
        "one_fp32": {**PLAIN, "epochs": 1, "precision": "fp32"},
        "one_bf16": {**PLAIN, "epochs": 1, "precision": "bf16"},
    }
    if options.pictures is None:  # 8x8 pixels
        for protocol in protocols.values():
            protocol["augmentation"] = {
                "crop_padding": min(1, protocol["augmentation"]["crop_padding"]),
                "flip": False,
            }
            protocol["batch_size"] = 20
    grids = [
        {"protocol": name, "backbones": [BACKBONE], "methods": ["ce"], "seeds": [1]}
        for name in protocols
    ]
    subset = 500 if options.rehearse else 5000
    runs, again = (Runs(options, protocols, grids, subset, copy) for copy in ("", "_again"))
    for each in (runs, again):
        each.prepare()
    found = {"cuda_tests": cuda_tests()}
    for precision in ("fp32", "bf16"):
        interrupted = runs.key(f"exact_{precision}", BACKBONE, "ce")
        found[f"resumed_{precision}"] = resumed(runs, again, interrupted)
        compared = runs.key(f"one_{precision}", BACKBONE, "ce")
        found[f"against_cpu_{precision}"] = against_cpu(runs, again, compared, precision)
    keep(options, "correctness", found)
    for name, each in found.items():
        print(f"| {name} | {each} |")
    raise SystemExit(not all(each["ok"] for each in found.values()))


def cuda_tests() -> dict[str, object]:
    """Tests that need a CUDA device; without one they are skipped, which is no failure."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-rfE",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests/training",
        "tests/procedures",
    ]
    done = subprocess.run(command, check=False, cwd=HOME, capture_output=True, text=True)
    lines = done.stdout.strip().splitlines() or [done.stderr[-300:]]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"ok": done.returncode == 0, "says": lines[-1], "failed": failed}


def resumed(runs: Runs, again: Runs, key: RunKey) -> dict[str, object]:
    """Train once without and once with an interruption, and compare all bytes that are results."""
    runs.calgrid(*runs.train_command(key))
    process = subprocess.Popen(
        command([*again.train_command(key), "--resume-every", "0"]),
        env=environment(),
        stderr=subprocess.DEVNULL,
    )
    while process.poll() is None and not any(again.results.rglob(RESUME_FILE)):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    interrupted = process.wait() != 0
    again.calgrid(*again.train_command(key))
    equal = {
        file: digest(runs.trained(key) / file) == digest(again.trained(key) / file)
        for file in (MODEL, HISTORY)
    }
    return {"ok": interrupted and all(equal.values()), "interrupted": interrupted, "equal": equal}


def against_cpu(runs: Runs, on_cpu: Runs, key: RunKey, precision: str) -> dict[str, object]:
    """Compare an epoch of training, and the logits of a network, on this device and the CPU."""
    model = runs.trained(key) / MODEL
    for made, on in ((runs, device()), (on_cpu, "cpu")):
        made.calgrid(*made.train_command(key, on))
        made.calgrid(*made.predict_command(key, on, model))
    here, there = (
        pq.read_table(made.trained(key) / HISTORY)["train_loss"][0].as_py()
        for made in (runs, on_cpu)
    )
    loss = abs(here - there) / abs(there)
    logits, reference = (
        scores(made.predicted(key) / logits_file("last", "test")) for made in (runs, on_cpu)
    )
    difference = float(np.abs(logits - reference).max() / reference.std())
    # logits are exported in fp32
    ok = loss <= LOSS_TOLERANCE[precision] and difference <= TOLERANCE
    return {
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


if __name__ == "__main__":
    main()
