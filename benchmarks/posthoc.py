"""Measure what metrics and their bootstrap intervals cost, next to a softmax over the same array
and to other packages.

::

    python benchmarks/posthoc.py                     at three sizes
    python benchmarks/posthoc.py --sizes 10000x100   at another, samples x classes
    python benchmarks/posthoc.py --resamples 200     fewer resamples

Every size has a process of its own; times are medians of repetitions that alternate. The exact
smooth calibration error, a dynamic programme in Python, stands apart, as do metrics that fit maps.
Packages that are not installed are left out.
"""

import argparse
import functools
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import pages
from calgrid import metrics
from calgrid.metrics import intervals
from calgrid.metrics.table import LABELLED

SIZES = ("10000x100", "25000x1000", "50000x1000")
BOOTSTRAP_SIZE = 25_000_000  # entries of the largest array whose bootstrap is measured
REPEATS = 3
SMOOTH = "smce"
COLUMNS = {
    "softmax s": ".3f",
    "metrics s": ".3f",
    "x softmax": ".2f",
    "x row sum": ".0f",
    "smCE s": ".3f",
    "maps s": ".3f",
    "MB": ".0f",
    "array MB": ".0f",
    "bootstrap s": ".1f",
    "its smCE s": ".1f",
    "bootstrap MB": ".0f",
}


def main() -> None:
    """Measure the metrics, each size in a process of its own."""
    parser = argparse.ArgumentParser(description="Measure metrics and their bootstrap.")
    parser.add_argument("--sizes", nargs="+", default=list(SIZES), metavar="NxK")
    parser.add_argument("--resamples", type=int, default=1000, metavar="R")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, figures of each size, and ratios of the seconds of other packages to ours."""
    if options.child:
        print(json.dumps(measure_metrics(options.child, options.resamples)))
        sys.exit()
    found = {size: child(size, options.resamples) for size in options.sizes}
    ratios: dict[str, dict[str, float]] = defaultdict(dict)
    for size, figures in found.items():
        for metric, package, theirs, ours, value, own in figures.pop("peers"):
            ratios[f"{metric}, {package}"][size] = theirs / ours
            print(f"{size}: {metric} of {package} {value:.6f}, ours {own:.6f}")
    return {"conditions": pages.machine(), "metrics": found, "peers": ratios}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    return f"""# Time and memory of the metrics

All labelled metrics, their bootstrap intervals, and the same metrics in other packages, with one
thread, in processor seconds.

    python benchmarks/posthoc.py

{pages.conditions(figures)}

{pages.table("N x K", figures["metrics"], COLUMNS)}

`metrics s`: with checks of the input, without smCE and `maps` (metrics that fit maps, up to two
million probabilities). `x softmax`, `x row sum`: ratios to NumPy's softmax and sum over classes of
the same float64 array. `MB`: growth of peak memory beyond the probabilities (`array MB`); input of
lower precision adds a float64 copy. The bootstrap has 1,000 resamples of all metrics with an
interval, smCE (200) apart.

{pages.table("time, its / ours", figures["peers"], dict.fromkeys(figures["metrics"], ".1f"))}

Ours check all probabilities; scikit-learn's AUROC and relplot get confidences alone, hence ratios
of 0.1 to 0.3. All values agree to 1e-6, but for relplot's smECE, which is lower by up to 0.0004.

Time is linear within the noise. With nothing else running (2,500 to 25,000 rows), a row of 100 and
of 1,000 classes costs the metrics 2.3 and 8.2 microseconds, the bootstrap 0.10 and 0.07 ms, plus
0.6 s at 1,000 classes; maps took 0.096 s for 2,500 and 0.715 s for 20,000 rows of 100 classes. A
second run had up to a third more. From 25 to 50 million probabilities the time of the set doubles:
7 to 8 ns a probability.
"""


def child(size: str, resamples: int) -> dict:
    """Figures of one size, from a new process."""
    command = [sys.executable, __file__, "--child", size, "--resamples", str(resamples)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def measure_metrics(size: str, resamples: int) -> dict:
    """Seconds, ratios and megabytes at one size."""
    count, classes = (int(part) for part in size.split("x"))
    logits, labels = sample(count, classes)
    probs = softmax(logits)
    begin = peak_mb()
    maps = [name for name, metric in LABELLED.items() if metric.slow]
    others = [name for name in LABELLED if name not in (SMOOTH, *maps)]
    score(probs, labels, others)
    memory = peak_mb() - begin
    plain, passes, whole, smooth = [], [], [], []
    for _ in range(REPEATS):
        passes.append(timed(lambda: probs.sum(axis=1)))
        plain.append(timed(lambda: softmax(logits)))
        whole.append(timed(lambda: score(probs, labels, others)))
        smooth.append(timed(lambda: score(probs, labels, [SMOOTH])))
    figures = {
        "softmax s": statistics.median(plain),
        "metrics s": statistics.median(whole),
        "x softmax": statistics.median(whole) / statistics.median(plain),
        "x row sum": statistics.median(whole) / statistics.median(passes),
        "smCE s": statistics.median(smooth),
        "MB": memory,
        "array MB": probs.nbytes / 1e6,
        "peers": peers(probs, labels),
    }
    if LABELLED[maps[0]].is_computed(count, classes):
        figures["maps s"] = timed(lambda: score(probs, labels, maps))
    if count * classes <= BOOTSTRAP_SIZE:
        begin = peak_mb()
        total = timed(lambda: metrics.bootstrap(probs, labels, n_resamples=resamples))
        figures["bootstrap MB"] = peak_mb() - begin
        intervals.SMOOTH_RESAMPLES = 1  # next to nothing
        intervals._counts.cache_clear()  # the weights are drawn again
        figures["bootstrap s"] = timed(
            lambda: metrics.bootstrap(probs, labels, n_resamples=resamples)
        )
        figures["its smCE s"] = total - figures["bootstrap s"]
    return figures


def sample(count: int, classes: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits of an overconfident model and labels, seeded."""
    rng = np.random.default_rng(0)
    logits = 1.5 * rng.standard_normal((count, classes))
    labels = rng.integers(0, classes, count)
    logits[np.arange(count), labels] += 4 + 2 * rng.standard_normal(count)
    return logits, labels


def softmax(logits: np.ndarray) -> np.ndarray:
    """Softmax of each row in as few passes as NumPy allows."""
    probs = logits - logits.max(axis=1, keepdims=True)
    np.exp(probs, out=probs)
    probs /= probs.sum(axis=1, keepdims=True)
    return probs


def score(probs: np.ndarray, labels: np.ndarray, names: Sequence[str]) -> dict[str, float]:
    """Check the input and compute these metrics."""
    predictions = metrics.check_probabilities(probs, labels)
    return {name: LABELLED[name].function(predictions, predictions.labels, 15) for name in names}


def peers(
    probs: np.ndarray, labels: np.ndarray
) -> list[tuple[str, str, float, float, float, float]]:
    """Metric, package, its seconds and ours, its value and ours, of installed packages."""
    warnings.simplefilter("ignore")
    confidence, correct = probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float)
    rows = []
    for metric, package, module, call in PEERS:
        try:
            loaded = importlib.import_module(module)
        except ImportError:
            continue
        arrays = (loaded, probs, labels, confidence, correct)
        theirs, value = best_of(functools.partial(call, *arrays))
        ours, own = best_of(functools.partial(LABELLED[metric].function, probs, labels, 15))
        rows.append((metric, package, theirs, ours, float(value), own))
    return rows


def _log_loss(module: object, probs: np.ndarray, labels: np.ndarray, *_: np.ndarray) -> float:
    return module.log_loss(labels, probs, labels=range(probs.shape[1]))


def _top5(module: object, probs: np.ndarray, labels: np.ndarray, *_: np.ndarray) -> float:
    return module.top_k_accuracy_score(labels, probs, k=5, labels=range(probs.shape[1]))


def _auroc(module: object, *arrays: np.ndarray) -> float:
    return module.roc_auc_score(arrays[3], arrays[2])


def _torchmetrics(module: object, probs: np.ndarray, labels: np.ndarray, *_: np.ndarray) -> float:
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)
    inputs = (
        torch.from_numpy(probs),
        torch.from_numpy(labels),
    )  # they share the memory of the arrays
    return module.multiclass_calibration_error(*inputs, probs.shape[1], n_bins=15)


def _netcal(module: object, probs: np.ndarray, labels: np.ndarray, *_: np.ndarray) -> float:
    return module.ECE(15).measure(probs, labels)


def _relplot(module: object, *arrays: np.ndarray) -> float:
    return module.smECE(arrays[2], arrays[3])


#: metric, package, module to import, and what computes it of the module, probabilities, labels,
#: confidence, correctness
PEERS = (
    ("nll", "scikit-learn", "sklearn.metrics", _log_loss),
    ("top5", "scikit-learn", "sklearn.metrics", _top5),
    ("auroc_failure", "scikit-learn", "sklearn.metrics", _auroc),
    ("ece", "torchmetrics", "torchmetrics.functional.classification", _torchmetrics),
    ("ece", "netcal", "netcal.metrics", _netcal),
    ("smece", "relplot", "relplot", _relplot),
)


def best_of(compute: Callable[[], float]) -> tuple[float, float]:
    """Shortest processor seconds of a few calls, and the value."""
    times, value = [], 0.0
    for _ in range(REPEATS):
        begin = time.process_time()
        value = compute()
        times.append(time.process_time() - begin)
    return min(times), value


def timed(compute: Callable[[], object]) -> float:
    """Processor seconds of one call."""
    begin = time.process_time()
    compute()
    return time.process_time() - begin


def peak_mb() -> float:
    """Peak resident memory of this process so far, in 10^6 bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6


if __name__ == "__main__":
    main()
