"""Measure fit and prediction of calibrators, beside their counterparts in probmetrics.

::

    python benchmarks/calibrators.py                                     all sizes, minutes
    python benchmarks/calibrators.py --classes 100 --ids ts svs smart    some of them
    python benchmarks/calibrators.py --samples 20000                     another size

Every number of classes has a process of its own. A case that takes more than five seconds is run
once; the first run of the peer, which compiles, does not count. Ratios of different NLLs say
little. Without probmetrics (and numba and pytorch-minimize, which it needs) only ours are measured.
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

import pages
from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError
from posthoc import sample, softmax

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


def main() -> None:
    """Measure the chosen cases and print their table."""
    parser = argparse.ArgumentParser(description="Measure fits and predictions of calibrators.")
    parser.add_argument("--classes", nargs="+", type=int, default=list(CLASSES), metavar="K")
    parser.add_argument("--ids", nargs="+", choices=PEERS, default=list(PEERS), metavar="ID")
    parser.add_argument("--samples", type=int, default=5_000, metavar="N", help="of the fit")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and figures of each calibrator."""
    if options.child:
        measure(options.child, options.ids, options.samples)
        sys.exit()
    found: dict[str, Any] = {}
    for classes in options.classes:
        command = [sys.executable, __file__, "--child", str(classes), "--ids", *options.ids]
        command += ["--samples", str(options.samples)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, env=environment, check=True
        )
        for line in done.stdout.splitlines():
            if line.startswith("{"):
                found = pages.merged(found, json.loads(line))
    return {"conditions": pages.machine(), "calibrators": found}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    rows = figures["calibrators"]
    compared = {id: row for id, row in rows.items() if "probmetrics" in row}
    alone = {id: row for id, row in rows.items() if id not in compared}
    keys = dict.fromkeys(key for row in rows.values() for key in row)
    seconds = {key: ".3f" for key in keys if key.endswith(" s")}
    ratios = {key: ".1f" for key in keys if key.endswith("its / ours")}
    return f"""# Time of calibrators

Processor seconds of a fit on 5,000 samples and the prediction of 10,000, beside probmetrics, with
one thread: the shortest of three that alternate. The logits of K classes are made up and
overconfident, in float32; probmetrics gets their softmax.

    python benchmarks/calibrators.py

{pages.conditions(figures)}

{pages.table("calibrator", compared, {**seconds, "probmetrics": "", **ratios})}

{pages.table("without a counterpart", alone, seconds)}

On 2026-11-27:

- NLLs of both are equal to four digits, but for `iso_ova`, which keeps probabilities away from 0
  (K = 10: 0.8552, probmetrics 0.9066; 100: 2.1841 and 2.5542), and `ivap_ova` at 1,000 (4.0439 and
  4.0413). `isotonic-naive-ovr` refuses classes without a sample.
- Under load ratios at 1,000 classes were 0.9 (`ts`, `ts_mix`) to 1.9 (`ts`).
- `vs` at 5,000 x 1,000 overfits (NLL 4.6, `ts` 3.9; `cts` 4.5), and the fit warns of it: a few
  classes are separable, so weights run to the bounds.
- `ms_odir` with strength 10 took 22 s at 5,000 x 1,000; its cross-validation there did not end in
  25 minutes and is refused.

## Growth with the number of samples

    python benchmarks/calibrators.py --samples 20000 --classes 100 1000  # and others

Exponent p of time ~ N^p by least squares on logarithms, 2,500 to 20,000 samples (1,000 classes:
from 5,000). 2026-11-26, AMD EPYC (Zen 4), one thread, load 5 to 9: single times may be a third too
large.

- 100 classes: 0.7 to 0.9 of `ts`, `svs`, `sms`, `vs`, `dirichlet`, `ms_odir`, `ets`, `cts` and
  `smart`; 1.0 to 1.1 of all others.
- 1,000 classes: `ets` 0.9, `spline` and `pts` 1.0, `irm` 1.1, `svs`, `hts` and `smart` 1.2, `ts`
  and `ts_ece_grid` 1.3; `vs` -0.4, as separable classes are slow.
- 20,000 samples and 1,000 classes: `pts` 14.38 s, `smart` 10.33, `irm` 10.30, all others 5.25 or
  less.
"""


def measure(classes: int, ids: list[str], n_fit: int) -> None:
    """Print the figures of one number of classes, a line of JSON for each calibrator."""
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
        found = {"s": seconds, "NLL": nll}
        if peer is not None:
            found |= {"its / ours": other / seconds, "its NLL": its_nll}
        row = {f"K = {classes:,}: {name}": value for name, value in found.items()}
        if peer is not None:
            row["probmetrics"] = PEERS[id]
        print(json.dumps({id: row}), flush=True)


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
