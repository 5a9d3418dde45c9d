"""Measure fit and prediction of calibrators, beside their counterparts in probmetrics.

::

    python benchmarks/calibrators.py                                     all sizes, minutes
    python benchmarks/calibrators.py --classes 100 --ids ts svs smart    some of them
    python benchmarks/calibrators.py --samples 20000                     another size

Every number of classes has a process of its own, with one thread: 5,000 samples for the fit, twice
as many to predict, made up and over-confident. Ours get logits, probmetrics their softmax, both in
float32. Seconds are processor seconds of fit and prediction together, the shortest of three that
alternate (of one, where they take more than five), after a first run of the peer, which compiles.
NLL is that of the predictions, in nats; ratios of different NLLs say little. Without probmetrics
(and numba and pytorch-minimize, which it needs) only ours are measured. The table is Markdown.
"""

import argparse
import json
import os
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np

from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError
from posthoc import sample, softmax
from speed import describe_machine, print_lines, print_row

#: calibrator -> its name in probmetrics, if it has a counterpart
PEERS = {
    "ts": "temp-scaling",
    "ts_mix": "ts-mix",
    "svs": "svs",
    "sms": "sms",
    "iso_ova": "isotonic-naive-ovr",
    "ivap_ova": "ivap-ovr",
    "vs": None,
    "dirichlet": None,
    "ms_odir": None,
    "ets": None,
    "hts": None,
    "cts": None,
    "ts_ece_grid": None,
    "irm": None,
    "spline": None,
    "pts": None,
    "smart": None,
}
#: minutes of cross-validation at 1,000 classes
SLOW = ("dirichlet", "ms_odir")
CLASSES = (10, 100, 1000)
#: shorter runs, in seconds, are repeated
SHORT, REPEATS = 5.0, 3
COLUMNS = ("K", "calibrator", "s", "NLL", "probmetrics", "its s", "its NLL", "its / ours")


def main() -> None:
    """Measure the chosen cases and print their table."""
    parser = argparse.ArgumentParser(description="Measure fits and predictions of calibrators.")
    parser.add_argument("--classes", nargs="+", type=int, default=list(CLASSES), metavar="K")
    parser.add_argument("--ids", nargs="+", choices=PEERS, default=list(PEERS), metavar="ID")
    parser.add_argument("--samples", type=int, default=5_000, metavar="N", help="of the fit")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        measure(options.child, options.ids, options.samples)
        return
    print_lines("conditions", {**describe_machine(), "threads": "1"})
    print_row(COLUMNS)
    print_row(["---:", "---", "---:", "---:", "---", "---:", "---:", "---:"])
    for classes in options.classes:
        command = [sys.executable, __file__, "--child", str(classes), "--ids", *options.ids]
        command += ["--samples", str(options.samples)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        for line in done.stdout or ():
            if line.startswith("["):
                print_row(json.loads(line))
        if done.wait():
            sys.exit(f"The measurement at {classes} classes failed.")


def measure(classes: int, ids: list[str], n_fit: int) -> None:
    """Print the cells of the rows of one number of classes, each as a line of JSON."""
    warnings.simplefilter("ignore")
    logits, labels = sample(3 * n_fit, classes)
    for id in ids:
        if classes > 100 and id in SLOW:
            continue
        peer = peer_of(id)
        if peer is not None:
            try:
                run(peer, softmax(logits), labels, n_fit)
            except ValueError as error:  # some need samples of each class
                print(f"probmetrics, {id}, {classes} classes: {error}", file=sys.stderr)
                peer = None
        ours, theirs = [], []
        while not ours or (len(ours) < REPEATS and max(ours[0][0], theirs[0][0]) < SHORT):
            try:
                ours.append(run(build_calibrator(id), logits.astype(np.float32), labels, n_fit))
            except DataError:
                break
            theirs.append(
                (0.0, 0.0)
                if peer is None
                else run(peer, softmax(logits).astype(np.float32), labels, n_fit)
            )
        if not ours:
            continue
        (seconds, nll), (other, its_nll) = min(ours), min(theirs)
        cells = [str(classes), id, f"{seconds:.3f}", f"{nll:.4f}"]
        compared = [PEERS[id], f"{other:.3f}", f"{its_nll:.4f}", f"{other / seconds:.1f}"]
        print(json.dumps(cells + (compared if peer is not None else [""] * 4)), flush=True)


def peer_of(id: str) -> Any:
    """Return the calibrator of probmetrics; None without a counterpart or without the package."""
    sys.modules.setdefault("coverage", None)  # numba would import coverage.py of this folder
    try:
        import torch  # noqa: PLC0415
        from probmetrics.calibrators import get_calibrator  # noqa: PLC0415
    except ImportError:
        return None
    torch.set_num_threads(1)
    name = PEERS[id]
    return name and get_calibrator(name)


def run(calibrator: Any, inputs: np.ndarray, labels: np.ndarray, n_fit: int) -> tuple[float, float]:
    """Processor seconds of fit and prediction, and the NLL of the predictions in nats."""
    begin = time.process_time()
    calibrator.fit(inputs[:n_fit], labels[:n_fit])
    found = np.asarray(calibrator.predict_proba(inputs[n_fit:]))
    seconds = time.process_time() - begin
    true = found[np.arange(len(found)), labels[n_fit:]].astype(np.float64)
    return seconds, float(-np.log(np.maximum(true, 1e-12)).mean())


if __name__ == "__main__":
    main()
