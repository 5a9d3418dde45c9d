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
from kit import HOME, Runs, device, empty, keep, parser

#: largest difference of logits of one network on GPU and CPU, relative to their spread: fp32
#: (without TF32), bf16
TOLERANCE = {"fp32": 1e-4, "bf16": 5e-2}
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
    runs = Runs(options, protocols, grids, subset=500 if options.rehearse else 5000)
    found = {"cuda_tests": cuda_tests()}
    for precision in ("fp32", "bf16"):
        found[f"resumed_{precision}"] = resumed(
            runs, runs.name(f"exact_{precision}", BACKBONE, "ce", 1)
        )
        found[f"against_cpu_{precision}"] = against_cpu(
            runs, runs.name(f"one_{precision}", BACKBONE, "ce", 1), precision
        )
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
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
        "tests/training",
    ]
    done = subprocess.run(command, check=False, cwd=HOME, capture_output=True, text=True)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-300:]]
    return {"ok": done.returncode == 0, "says": last[0]}


def resumed(runs: Runs, name: str) -> dict[str, object]:
    """Train once without and once with an interruption, and compare all bytes that are results."""
    runs.calgrid(*runs.train_command(name))
    command = [
        sys.executable,
        "-m",
        "calgrid",
        *map(str, runs.train_command(name, copy="_killed")),
        "--resume-every",
        "0",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and not any(runs.out(name, "_killed").rglob("resume.pt")):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    interrupted = process.wait() != 0
    runs.calgrid(*runs.train_command(name, copy="_killed"))
    files = ("model.safetensors", "history.parquet")
    equal = {
        file: digest(runs.out(name) / file) == digest(runs.out(name, "_killed") / file)
        for file in files
    }
    return {"ok": interrupted and all(equal.values()), "interrupted": interrupted, "equal": equal}


def against_cpu(runs: Runs, name: str, precision: str) -> dict[str, object]:
    """Compare an epoch of training, and the logits of a network, on this device and the CPU."""
    for copy, on in (("", device()), ("_cpu", "cpu")):
        runs.calgrid(*runs.train_command(name, copy, on))
        runs.calgrid(*runs.predict_command(name, on, runs.out(name) / "model.safetensors", copy))
    histories = [
        pq.read_table(runs.out(name, copy) / "history.parquet").to_pydict() for copy in ("", "_cpu")
    ]
    here, there = (history["train_loss"][0] for history in histories)
    loss = abs(here - there) / abs(there)
    logits = [
        scores(runs.out(name, copy) / "logits" / "last" / "test.parquet") for copy in ("", "_cpu")
    ]
    difference = float(np.abs(logits[0] - logits[1]).max() / logits[1].std())
    return {
        "ok": loss <= LOSS_TOLERANCE[precision]
        and difference <= TOLERANCE["fp32"],  # logits are exported in fp32
        "loss_difference": loss,
        "logit_difference": difference,
        "tolerance": [LOSS_TOLERANCE[precision], TOLERANCE["fp32"]],
    }


def scores(path: Path) -> np.ndarray:
    """Logits ``(N, K)`` of a file."""
    return np.array(pq.read_table(path, columns=["logits"])["logits"].to_pylist())


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
