"""Measure how long calibrators take to fit, next to temperature scaling of probmetrics in the same
process.

::

    python benchmarks/calibrators.py                                          all cases, minutes
    python benchmarks/calibrators.py --cases 10000x100 --ids ts ets smart     some of them

Every case (samples x classes) has a process of its own, with one thread. Seconds are those of
``fit`` on logits in float64, the shortest of three where a fit takes less than a second; ``MB`` is
by how much the peak resident memory grew at that fit over what it was with the logits held.
probmetrics (and numba, which it needs and does not name) is used if it is installed; ratios are to
its temperature scaling. The table is Markdown.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings

import numpy as np

from calgrid.calibrators import build_calibrator
from posthoc import peak_mb, print_row, sample, softmax
from speed import describe_machine, print_lines

#: case -> calibrators that are timed there
CASES = {
    "10000x10": (
        "ts",
        "ets",
        "ts_ece_grid",
        "hts",
        "pts",
        "smart",
        "vs",
        "svs",
        "sms",
        "dirichlet",
        "spline",
        "cts",
    ),
    "10000x100": (
        "ts",
        "ets",
        "ts_ece_grid",
        "hts",
        "pts",
        "smart",
        "vs",
        "svs",
        "sms",
        "spline",
        "cts",
    ),
    "10000x1000": ("ts", "ets", "hts", "pts", "smart", "svs"),
    "25000x1000": ("ts", "ets", "svs"),
    "40000x1000": ("ts", "cts"),
}
#: fits shorter than this many seconds are repeated
SHORT, REPEATS = 1.0, 3


def main() -> None:
    """Measure the chosen cases and print their table."""
    parser = argparse.ArgumentParser(description="Measure fits of calibrators.")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), metavar="NxK")
    parser.add_argument(
        "--ids", nargs="+", metavar="ID", help="calibrators; those of the case by default"
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measure(options.child, options.ids or CASES[options.child])))
        return
    print_lines("conditions", {**describe_machine(), "threads": "1"})
    print_row(["N x K", "calibrator", "fit s", "probmetrics TS s", "its TS / ours", "MB"])
    print_row(["---", "---", *["---:"] * 4])
    for case in options.cases:
        for id, seconds, peer, memory in child(case, options.ids):
            ratio = f"{peer / seconds:.1f}" if peer else ""
            print_row(
                [case, id, f"{seconds:.3f}", f"{peer:.3f}" if peer else "", ratio, f"{memory:.0f}"]
            )


def child(case: str, ids: list[str] | None) -> list[tuple[str, float, float | None, float]]:
    """Figures of one case, from a new process."""
    command = [sys.executable, __file__, "--child", case, *(["--ids", *ids] if ids else [])]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure(case: str, ids: list[str]) -> list[tuple[str, float, float | None, float]]:
    """Identifier, seconds, seconds of the peer, megabytes."""
    count, classes = (int(part) for part in case.split("x"))
    logits, labels = sample(count, classes)
    peer = peer_seconds(softmax(logits), labels)
    found = []
    for id in ids:
        begin = peak_mb()
        seconds = [fit_seconds(id, logits, labels)]
        memory = peak_mb() - begin
        while seconds[0] < SHORT and len(seconds) < REPEATS:
            seconds.append(fit_seconds(id, logits, labels))
        found.append((id, min(seconds), peer, memory))
    return found


def fit_seconds(id: str, logits: np.ndarray, labels: np.ndarray) -> float:
    """Seconds of one fit, the checks of its input included."""
    calibrator = build_calibrator(id)
    begin = time.perf_counter()
    calibrator.fit(logits, labels)
    return time.perf_counter() - begin


def peer_seconds(probs: np.ndarray, labels: np.ndarray) -> float | None:
    """Shortest of three fits of probmetrics' temperature scaling; None without the package."""
    warnings.simplefilter("ignore")
    try:
        import torch  # noqa: PLC0415
        from probmetrics.calibrators import get_calibrator  # noqa: PLC0415
    except ImportError:
        return None
    torch.set_num_threads(1)
    seconds = []
    for _ in range(REPEATS):
        calibrator = get_calibrator("temp-scaling")
        begin = time.perf_counter()
        calibrator.fit(probs, labels)
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


if __name__ == "__main__":
    main()
