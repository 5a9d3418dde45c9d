"""Judge estimators of the calibration error against the truth, which ambiguous digits make
computable.

::

    snakemake --cores all --configfile config/studies/true_calibration.yaml
    python benchmarks/true_calibration.py results                    200,000 fresh images a run
    python benchmarks/true_calibration.py results --images 20000     a quick look

Every run of the study predicts the classes of fresh images of the same process, of which the
posterior is known; its calibrators are fitted on its val split again. The truth of a model is the
ECE of 15 bins against the posterior of all fresh images, sign_b gap_b summed over bins with the
sign from one half of the images and the gap from the other, the mean of both ways: no absolute
value, so noise does not add up. Where a bin's gap is within its noise the sign is a guess, so this
is rather too small than too large. With 100 bins in place of 15 it says what the bins hide. An
estimator then sees as many test images as a person would have, with labels (soft_ece: with
posteriors): ``bias`` is its mean minus the truth and ``rms`` the root mean square of its distance
from the truth, over disjoint test sets and all models, in points of a per cent. Tables are
Markdown.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from calgrid import metrics
from calgrid.calibrators import build_calibrator
from calgrid.datasets import ImageSplit
from calgrid.datasets.digits_ambiguous import DigitsAmbiguous, draw
from calgrid.procedures.network import build_network
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.logits import read_logits
from calgrid.training.data import DeviceImages

Floats = NDArray[np.float64]
RUNS = "runs/digits_noisy/digits_ambiguous/resnet8"
CALIBRATORS = ("none", "ts", "ets", "vs", "iso", "hb", "spline", "smart")
ESTIMATORS: dict[str, Callable[..., float]] = {
    name: metrics.METRICS[name].function
    for name in ("ece", "ece_debiased", "ece_sweep", "aece", "aece_eq", "ks", "smce", "smece")
}
DRAW_SEED = 1_000  # any but that of the data set itself
BINS, FINE_BINS = 15, 100
BATCH = 1024


def main() -> None:
    """Measure all runs and print both tables."""
    options = parse()
    fresh = draw(options.images, np.random.RandomState(DRAW_SEED))
    truth = fresh.distribution.astype(np.float64)
    rows = []
    for run in sorted(Path(options.results, RUNS).glob("*/seed*")):
        for name, probs in predictions(run, fresh):
            place = {"method": run.parent.name, "seed": run.name, "calibrator": name}
            rows += [{**place, **row} for row in judge(probs, fresh.labels, truth, options)]
    frame = pd.DataFrame(rows)
    frame["none"] = np.where(frame["calibrator"] == "none", "uncalibrated", "calibrated")
    print_truth(frame)
    print_errors(frame)


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description="Judge estimators of the calibration error against the truth."
    )
    parser.add_argument(
        "results", type=Path, help="folder of results of the study true_calibration"
    )
    parser.add_argument("--images", type=int, default=200_000, help="fresh images (200,000)")
    parser.add_argument(
        "--sizes", nargs="+", type=int, default=[500, 1000, 4000], help="sizes of the test sets"
    )
    parser.add_argument("--sets", type=int, default=10, help="disjoint test sets of each size (10)")
    return parser.parse_args()


def predictions(run: Path, fresh: ImageSplit) -> Iterator[tuple[str, Floats]]:
    """Probabilities of a run for the fresh images, with every calibrator."""
    states, description = load_checkpoint(run / "model.safetensors")
    info = DigitsAmbiguous.registered
    network, procedure = build_network(description["spec"], info["n_classes"])
    network.load_state_dict(states["last.model"])
    network = network.to(memory_format=torch.channels_last).eval()
    images = DeviceImages(
        fresh.images, fresh.labels, info["mean"], info["std"], torch.device("cpu"), True
    )
    with torch.no_grad():
        logits = torch.cat(
            [procedure.predict(network, batch)[0] for batch in images.batches(BATCH)]
        ).numpy()
    val = read_logits(run / "logits/last/val.parquet")
    for name in CALIBRATORS:
        yield name, build_calibrator(name).fit(val.logits, val.label).predict_proba(logits)


def judge(
    probs: Floats, labels: NDArray[np.int64], truth: Floats, options: argparse.Namespace
) -> Iterator[dict]:
    """Estimates on test sets of each size, and the truth."""
    gap = probs.max(axis=1) - truth[np.arange(len(truth)), probs.argmax(axis=1)]
    exact = {bins: signed_error(probs.max(axis=1), gap, bins) for bins in (BINS, FINE_BINS)}
    for size in options.sizes:
        for number in range(min(options.sets, len(labels) // size)):
            rows = slice(number * size, (number + 1) * size)
            values = {
                name: estimate(probs[rows], labels[rows], BINS)
                for name, estimate in ESTIMATORS.items()
            }
            values["soft_ece"] = metrics.ece_human(probs[rows], truth[rows], BINS)
            for name, value in values.items():
                yield {
                    "size": size,
                    "estimator": name,
                    "value": value,
                    "truth": exact[BINS],
                    "fine": exact[FINE_BINS],
                }


def signed_error(confidence: Floats, gap: Floats, n_bins: int) -> float:
    """Sum over bins of |gap| without its noise: the sign from every other image, the gap from the
    rest.
    """
    index = np.minimum((confidence * n_bins).astype(int), n_bins - 1)
    halves = [
        np.bincount(index[part::2], gap[part::2], minlength=n_bins) / len(gap[part::2])
        for part in (0, 1)
    ]
    return float(np.sign(halves[0]) @ halves[1] + np.sign(halves[1]) @ halves[0]) / 2


def print_truth(frame: pd.DataFrame) -> None:
    """Truth of every method and calibrator, mean over seeds, in per cent."""
    models = frame.drop_duplicates(["method", "seed", "calibrator"])
    table = 100 * models.groupby(["method", "calibrator"])[["truth", "fine"]].mean().unstack(
        "calibrator"
    )
    for column, title in (("truth", f"{BINS} bins"), ("fine", f"{FINE_BINS} bins")):
        print_rows(f"true error, {title}", table[column][list(CALIBRATORS)])


def print_errors(frame: pd.DataFrame) -> None:
    """Bias and root mean square error of every estimator, in points of a per cent."""
    error = 100 * (frame["value"] - frame["truth"])
    frame = frame.assign(bias=error, rms=error**2)
    for kind in ("uncalibrated", "calibrated"):
        table = frame[frame["none"] == kind].groupby(["estimator", "size"])[["bias", "rms"]].mean()
        table["rms"] = np.sqrt(table["rms"])
        wide = table.unstack("size").swaplevel(axis=1).sort_index(axis=1)
        wide.columns = [f"{size:,} {what}" for size, what in wide.columns]
        print_rows(kind, wide.loc[[*ESTIMATORS, "soft_ece"]])


def print_rows(title: str, table: pd.DataFrame) -> None:
    """Print a table as Markdown."""
    print(
        f"\n| {title} | {' | '.join(table.columns)} |\n| --- | "
        f"{' | '.join(['---:'] * table.shape[1])} |"
    )
    for name, row in table.iterrows():
        print(f"| {name} | {' | '.join(f'{value:.2f}' for value in row)} |")


if __name__ == "__main__":
    main()
