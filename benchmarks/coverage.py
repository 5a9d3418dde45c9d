"""How often the intervals of calgrid hold the truth, and how often its comparisons find a
difference that is not there.

::

    python benchmarks/coverage.py                        the tables, and their lowest coverages
    python benchmarks/coverage.py --sets 50 50 20        a quick look
    python benchmarks/coverage.py --only models --estimators squared sorted
    python benchmarks/coverage.py --only range           2 to 1,000 classes, 50 to 10,000 samples

Test sets are drawn from models whose posterior is known: ten classes, logits N(0, 4), labels drawn
from their softmax, and a model whose logits are the true ones times a factor (1: calibrated, 1.3:
overconfident, 0.8: underconfident). The truth is the metric of 200,000 samples with the posterior
in place of labels; errors of a calibrated model are exactly 0, also those of the debiased
estimators, which estimate the same quantities. ``sharp`` and ``flat`` are two calibrated models of
two classes: one knows u + v, the other u alone, u ~ N(0, 2.25), v ~ N(0, 100) (``mild``: v ~ N(0,
1)).

The range of use (``CELLS``): logits N(ln f_k, s^2), with s such that a share is right, and f_k the
frequencies of classes, in equal ratios; a model that knows them, and one with logits times 1.5.
Pairs: ``equal``, two networks that see them with independent noise N(0, min(0.4 s, 1)^2), which do
not differ in expectation; ``less``, one that knows them and one that sees them with noise N(0, (0.1
s)^2).
"""

import argparse
import dataclasses
import functools
import itertools
import math
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import optimize, special

import pages
from calgrid.metrics import (
    METRICS,
    _chance,
    _estimators,
    binning,
    bootstrap_ood,
    bootstrap_soft,
    intervals,
    kernel,
    smooth,
)
from calgrid.metrics._inputs import Predictions
from calgrid.metrics.table import evaluate_ood, evaluate_soft
from calgrid.statistics.paired import seed_interval, student_reach
from calgrid.statistics.verdicts import EQUIVALENT, FOUND, judge

Floats = NDArray[np.float64]
Models = dict[str, Floats]
Interval = tuple[float, float]
BINS, FINE_BINS, POPULATION, CLASSES = 15, 100, 200_000, 10
TAILS = (0.025, 0.975)
#: samples, classes, share of right predictions, and frequency of the rarest of the classes in that
#: of the most frequent
CELLS = (
    *((50, 2, 0.6, 1), (50, 10, 0.9, 1), (200, 2, 0.62, 1), (200, 2, 0.99, 1), (200, 2, 0.9, 0.02)),
    *((200, 10, 0.9, 0.01), (500, 10, 0.6, 1), (500, 10, 0.95, 1), (1000, 2, 0.9, 0.02)),
    *((1000, 10, 0.999, 1), (2000, 10, 0.97, 0.1), (2000, 100, 0.7, 0.01), (1000, 1000, 0.8, 1)),
    (10_000, 10, 0.99, 1),
)
#: probabilities up to which all metrics are resampled in every second set; otherwise those that
#: decide, in half of the sets
SMALL = 10_000
#: blocks of samples whose mean is the truth of a cell
TRUTH_BLOCKS = 10
#: metrics of whose differences there are verdicts
DECIDING = (
    *("accuracy", "balanced_accuracy", "nll", "brier", "squared_ce"),
    *("nll_calibration", "nll_refinement"),
)
SMOOTH_RESAMPLES = 99
#: sets with an interval from which there is a coverage: those of ``smce`` and ``smece``
FEWEST_SETS = 8
FACTORS = (1.0, 1.3, 0.8)
#: estimators of most test sets
ESTIMATORS = {
    "means": _estimators._means,
    "squared": _estimators._squared,
    "sorted": _estimators._sorted,
    "classwise": _estimators._classwise,
    "nll_parts": _estimators._nll_parts,
}
#: pairs of models; the errors of the first two are both 0
PAIRS = ("sharp - flat", "mild - flat", "1 - 1.05", "1.3 - 1.35", "1.3 - 0.8")


def scaled(
    n: int, rng: np.random.Generator, factors: Sequence[float]
) -> tuple[Models, NDArray[np.int64], Floats]:
    """Probabilities of models by the factor of their logits, labels, and the posterior, (n, 10)."""
    logits = 2 * rng.normal(size=(n, CLASSES))
    truth = special.softmax(logits, axis=1)
    labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    return (
        {f"{factor:g}": special.softmax(factor * logits, axis=1) for factor in factors},
        labels,
        truth,
    )


def informed(
    n: int, rng: np.random.Generator, spread: float
) -> tuple[Models, NDArray[np.int64], Floats]:
    """Two calibrated models of two classes, one of which knows more, as in :func:`scaled`."""
    grid = np.linspace(-5, 5, 201)
    weight = np.exp(-(grid**2) / 2)
    u = 1.5 * rng.normal(size=n)
    sharp = special.expit(u + spread * rng.normal(size=n))
    flat = special.expit(u[:, None] + spread * grid) @ (weight / weight.sum())
    labels = (rng.random(n) > sharp).astype(np.int64)
    truth = np.column_stack([sharp, 1 - sharp])
    return {"sharp": truth, "flat": np.column_stack([flat, 1 - flat])}, labels, truth


def pair(
    name: str, n: int, rng: np.random.Generator
) -> tuple[list[Floats], NDArray[np.int64], Floats]:
    """Both models of a pair, labels and posterior."""
    if "flat" in name:
        models, labels, truth = informed(n, rng, 10.0 if name.startswith("sharp") else 1.0)
        return [models["sharp"], models["flat"]], labels, truth
    factors = [float(word) for word in name.split(" - ")]
    models, labels, truth = scaled(n, rng, factors)
    return [models[f"{factor:g}"] for factor in factors], labels, truth


def population(probs: Floats, truth: Floats, calibrated: bool) -> dict[str, float]:
    """Labelled metrics of infinitely many samples, from a posterior (N, K), not labels."""
    n, k = probs.shape
    confidence, top = probs.max(axis=1), probs.argmax(axis=1)
    right = truth[np.arange(n), top]
    order = np.argsort(confidence, kind="stable")
    residual = (confidence - right)[order]
    cumulated = np.concatenate([[0], residual.cumsum()])
    fine = np.abs(np.diff(cumulated[np.linspace(0, n, FINE_BINS + 1).astype(int)])).sum() / n
    adaptive = np.abs(np.diff(cumulated[np.linspace(0, n, BINS + 1).astype(int)])).sum() / n
    binned = sums(confidence, right)
    classes = [sums(probs[:, j], truth[:, j]) for j in range(k)]
    square = (probs**2).sum(axis=1) - 2 * (probs * truth).sum(axis=1) + 1
    calibration = sum(float(binning.rms_gap(each) ** 2) for each in classes)
    nll = -(truth * np.log(np.maximum(probs, 1e-12))).sum(axis=1).mean()
    errors = {
        "ece": binning.mean_gap(binned),
        "rmsce": binning.rms_gap(binned),
        "o_ece": binning.mean_over(binned),
        "u_ece": binning.mean_under(binned),
        "aece": adaptive,
        "aece_eq": adaptive,
        "ece_sweep": fine,
        "ks": np.abs(cumulated).max() / n,
        "cece": np.mean([binning.mean_gap(each) for each in classes]),
        "squared_ce": binning.rms_gap(binned) ** 2,
        "brier_calibration": calibration,
        "nll_calibration": nll - tempered_nll(probs, truth),
        **smoothed(confidence, confidence - right),
    }
    errors = dict.fromkeys(errors, 0.0) if calibrated else errors
    wrong = (1 - right)[order]
    five = np.take_along_axis(truth, np.argsort(-probs, axis=1)[:, :5], axis=1).sum(axis=1)
    return {
        **errors,
        "ece_debiased": errors["ece"],
        "rmsce_debiased": errors["rmsce"],
        "accuracy": right.mean(),
        "top5": five.mean(),
        "nll": nll,
        "nll_refinement": nll - errors["nll_calibration"],
        "brier": square.mean(),
        "brier_refinement": square.mean() - errors["brier_calibration"],
        **by_class(probs, truth),
        "aurc": (wrong[::-1].cumsum() / np.arange(1, n + 1)).mean(),
        **separation(right[order], wrong),
    }


def by_class(probs: Floats, truth: Floats) -> dict[str, float]:
    """Metrics in which each class counts alike."""
    n, k = probs.shape
    top, size = probs.argmax(axis=1), truth.sum(axis=0)
    hits = np.bincount(top, truth[np.arange(n), top], k)
    areas = []
    for column, p in zip(truth.T, probs.T, strict=True):
        own = column[np.argsort(p)]
        others = 1 - own
        areas.append(own @ (others.cumsum() - others / 2) / (own.sum() * others.sum()))
    return {"balanced_accuracy": float((hits / size).mean()), "macro_auroc": float(np.mean(areas))}


def tempered_nll(probs: Floats, truth: Floats) -> float:
    """NLL at the best temperature."""
    logits = np.log(np.maximum(probs, 1e-12))
    found = optimize.minimize_scalar(
        lambda beta: -(truth * special.log_softmax(beta * logits, axis=1)).sum(axis=1).mean(),
        bounds=(0.01, 20),
        method="bounded",
    )
    return float(found.fun)


def sums(p: Floats, q: Floats) -> binning.BinSums:
    """Sums of the bins of probabilities (N,) with expected outcomes (N,)."""
    index = binning.bin_index(p, BINS)
    return binning.BinSums(
        *(np.bincount(index, weight, BINS).astype(float) for weight in (None, p, q))
    )


def smoothed(confidence: Floats, residual: Floats) -> dict[str, float]:
    """Both smooth errors, the first with confidences merged into 2,000 cells."""
    cell = np.floor(confidence * 2000).clip(max=1999)
    places, group = np.unique(cell, return_inverse=True)
    n = len(residual)
    nodes = (residual / n) @ kernel.node_shares(confidence)
    sums = np.bincount(group, -residual) / n
    return {
        "smce": float(smooth.optimum((places + 0.5) / 2000, sums[None])[0]),
        "smece": float(kernel.fixed_points(nodes[None])[0]),
    }


def separation(right: Floats, wrong: Floats) -> dict[str, float]:
    """Failure prediction from the chances (N,) to be right and wrong, in ascending order of
    confidence.
    """
    below = wrong.cumsum() - wrong / 2
    lost = np.searchsorted(right.cumsum(), 0.05 * right.sum())
    precision = wrong.cumsum() / np.arange(1, len(wrong) + 1)
    return {
        "auroc_failure": float(right @ below / (right.sum() * wrong.sum())),
        "aupr_failure": float(wrong @ precision / wrong.sum()),
        "fpr95_failure": float(wrong[lost:].sum() / wrong.sum()),
    }


def resampled(
    models: Sequence[Floats],
    labels: NDArray[np.int64],
    number: int,
    options: argparse.Namespace,
) -> list[intervals.Resampled]:
    """As :func:`calgrid.metrics.intervals.resampled`, on most test sets without the metrics that
    take long.

    The first ``options.smooth`` test sets have all.
    """
    if number < options.smooth:
        return [
            intervals.resampled(probs, labels, n_resamples=SMOOTH_RESAMPLES, seed=number)
            for probs in models
        ]
    checked = [Predictions(probs, labels) for probs in models]
    makers = [ESTIMATORS[name] for name in options.estimators]
    estimators = [[make(one, BINS) for make in makers] for one in checked]
    blocks: list[list[_estimators.Draws]] = [[] for _ in models]
    for weights in intervals.resample_weights(len(labels), options.resamples, number, rows=64):
        for own, parts in zip(estimators, blocks, strict=True):
            parts += [estimate(weights) for estimate in own]
    found = []
    for one, parts in zip(checked, blocks, strict=True):
        draws = _estimators.joined(parts)
        draws = intervals.with_added(draws, one, BINS, options.resamples, number)
        chance = _chance.chance_errors(one, BINS, _chance.MOST_DRAWS, number)
        values = {name: METRICS[name].function(one, one.labels, BINS) for name in draws.values}
        found.append(intervals.Resampled(values, *draws, chance, one.n_samples))
    return found


class Count:
    """Coverage of intervals by name."""

    def __init__(self) -> None:
        self.held: dict[str, list[bool]] = defaultdict(list)

    def add(self, name: str, interval: Interval, truth: float) -> None:
        """Note whether an interval holds the truth, up to rounding, where there are both."""
        if not (np.isnan(interval[0]) or np.isnan(truth)):
            self.held[name].append(interval[0] - 1e-12 <= truth <= interval[1] + 1e-12)

    def shown(self, name: str) -> float | None:
        """Coverage in %, of enough sets."""
        held = self.held.get(name, [])
        return 100 * float(np.mean(held)) if len(held) >= FEWEST_SETS else None

    def missed(self, name: str) -> float | None:
        """What is missing to full coverage, in %."""
        held = self.shown(name)
        return None if held is None else 100 - held


def single(factor: float, n: int, options: argparse.Namespace, sets: int) -> Count:
    """Coverage of all metrics of one model."""
    rng, count = np.random.default_rng([n, int(10 * factor)]), Count()
    models, _, posterior = scaled(POPULATION, rng, [factor])
    truth = population(models[f"{factor:g}"], posterior, factor == 1)
    for number in range(sets):
        models, labels, _ = scaled(n, rng, [factor])
        (found,) = resampled(list(models.values()), labels, number, options)
        for name in found.drawn:
            count.add(
                name, intervals.interval(METRICS[name], found, TAILS), truth.get(name, np.nan)
            )
        if "ece" not in found.drawn:
            continue
        for name, interval in others(found, Predictions(*models.values(), labels)).items():
            count.add(name, interval, truth["ece"])
    return count


def others(found: intervals.Resampled, predictions: Predictions) -> dict[str, Interval]:
    """Intervals of the ECE that are not used, and of its debiased form."""
    value, debiased = found.values["ece"], found.values["ece_debiased"]
    residual = predictions.confidence - predictions.correct
    index = binning.bin_index(predictions.confidence, BINS)
    influence = np.sign(np.bincount(index, residual, BINS))[index] * residual - value
    error = 1.96 * influence.std() / np.sqrt(len(residual))
    drawn, drawn_debiased = found.drawn["ece"], found.drawn["ece_debiased"]
    low, high = intervals.quantiles(drawn, TAILS)
    low_debiased, high_debiased = intervals.quantiles(drawn_debiased, TAILS)
    return {
        "ece: percentile": (low, high),
        "ece: basic, cut at 0": (max(2 * value - high, 0), 2 * value - low),
        "ece: BCa": bca(drawn, value, influence),
        "ece_debiased: percentile": (low_debiased, high_debiased),
        "ece_debiased: basic, cut at 0": (
            max(2 * debiased - high_debiased, 0),
            2 * debiased - low_debiased,
        ),
        "ece_debiased: normal theory": (debiased - error, debiased + error),
        "ece_debiased: reflected below, centred above (before)": (
            max(2 * debiased - high_debiased, 0),
            debiased + drawn_debiased.mean() - low_debiased,
        ),
    }


def bca(drawn: Floats, value: float, influence: Floats) -> Interval:
    """Bias-corrected and accelerated interval (Efron 1987), the acceleration from the influence
    function.
    """
    share = np.clip((drawn < value).mean(), 1 / len(drawn), 1 - 1 / len(drawn))
    bias, speed = special.ndtri(share), (influence**3).sum() / (6 * (influence**2).sum() ** 1.5)
    z = bias + special.ndtri(np.array(TAILS))
    return tuple(np.quantile(drawn, special.ndtr(bias + z / (1 - speed * z))))


def paired(name: str, n: int, options: argparse.Namespace, sets: int) -> tuple[Count, Count]:
    """Coverage of the true difference by our intervals and by percentile intervals."""
    rng = np.random.default_rng([n, PAIRS.index(name)])
    ours, percentile = Count(), Count()
    both, _, posterior = pair(name, POPULATION, rng)
    calibrated = [True, True] if "flat" in name else [word == "1" for word in name.split(" - ")]
    truth = [
        population(probs, posterior, exact) for probs, exact in zip(both, calibrated, strict=True)
    ]
    for number in range(sets):
        both, labels, _ = pair(name, n, rng)
        found = resampled(both, labels, number, options)
        for metric in found[0].drawn:
            difference = truth[0].get(metric, np.nan) - truth[1].get(metric, np.nan)
            ours.add(
                metric, intervals.difference_interval(METRICS[metric], *found, TAILS), difference
            )
            drawn = found[0].drawn[metric] - found[1].drawn[metric]
            percentile.add(metric, intervals._percentile(drawn, TAILS), difference)
    return ours, percentile


def out_of_distribution(n: int, options: argparse.Namespace, sets: int) -> Count:
    """Coverage of the metrics that tell two data sets apart, of n samples each."""
    rng, count = np.random.default_rng(n), Count()

    def draw(size: int) -> tuple[Floats, Floats]:
        return tuple(
            special.softmax(spread * rng.normal(size=(size, CLASSES)), axis=1)
            for spread in (2.0, 1.2)
        )

    truth = evaluate_ood(*draw(POPULATION))
    for number in range(sets):
        for name, interval in bootstrap_ood(
            *draw(n), n_resamples=options.resamples, seed=number
        ).items():
            count.add(name, interval, truth[name])
    return count


def soft(temperature: float, n: int, options: argparse.Namespace, sets: int) -> Count:
    """Coverage of the metrics against a posterior that the model does not know, calibrated at a
    temperature of 1.
    """
    rng, count = np.random.default_rng(n), Count()

    def draw(size: int) -> tuple[Floats, Floats]:
        models, _, truth = informed(size, rng, 1.0)
        return special.softmax(np.log(models["flat"]) / temperature, axis=1), truth

    truth = evaluate_soft(*draw(POPULATION)) | ({"soft_ece": 0.0} if temperature == 1 else {})
    for number in range(sets):
        for name, interval in bootstrap_soft(
            *draw(n), n_resamples=options.resamples, seed=number
        ).items():
            count.add(name, interval, truth[name])
    return count


def over_seeds(values: Floats, truth: float) -> dict[str, float]:
    """Coverage in % of intervals of a mean in [0, 1] over seeds, from values (sets, seeds)."""
    mean, error = values.mean(axis=1), values.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    t = special.stdtrit(values.shape[1] - 1, TAILS[1])
    logits = special.logit(values.clip(1e-9, 1 - 1e-9))
    centre, reach = logits.mean(axis=1), t * logits.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    angle, turn = np.arcsin(np.sqrt(mean)), t * error / (2 * np.sqrt(mean * (1 - mean)))
    summary = pd.DataFrame(
        {"mean": mean, "std": values.std(axis=1, ddof=1), "n_seeds": values.shape[1]}
    )
    ours = seed_interval(summary.assign(metric="accuracy", ci_low=np.nan, ci_high=np.nan), 0.95)
    tried = {
        "logit of the mean (used)": (ours["ci_low"], ours["ci_high"]),
        "Student": (mean - t * error, mean + t * error),
        "Student of logits": (special.expit(centre - reach), special.expit(centre + reach)),
        "arcsine of the mean": tuple(
            np.sin((angle + s * turn).clip(0, np.pi / 2)) ** 2 for s in (-1, 1)
        ),
    }
    return {
        name: 100 * float(np.mean((low <= truth) & (truth <= high)))
        for name, (low, high) in tried.items()
    }


def both_sources(n_seeds: int, share: float, sets: int) -> dict[str, float]:
    """Wrong verdicts on equal methods whose difference varies over test samples and, by a share of
    it, over seeds.
    """
    rng = np.random.default_rng(n_seeds)
    test, seed = np.sqrt(1 - share), np.sqrt(share * n_seeds)
    by_seed = test * rng.normal(size=(sets, 1)) + seed * rng.normal(size=(sets, n_seeds))
    difference, std = by_seed.mean(axis=1), by_seed.std(axis=1, ddof=1)
    student = np.asarray(student_reach(std, n_seeds, 0.95))
    samples = special.ndtri(TAILS[1]) * test
    reaches = {
        "both (used)": np.hypot(student, samples),
        "test samples alone": samples,
        "seeds alone": student,
    }
    return {
        name: 100 * float(np.mean(np.abs(difference) > reach)) for name, reach in reaches.items()
    }


def table(
    title: str, rows: Iterable[str], columns: Mapping[str, Callable[[str], float | None]]
) -> dict[str, list[float]]:
    """Numbers of each row that has any; prints them as a table."""
    known: dict[str, dict[str, float]] = defaultdict(dict)
    for row, (name, cell) in itertools.product(rows, columns.items()):
        if (found := cell(row)) is not None:
            known[row][name] = found
    print("\n" + pages.table(title, known, dict.fromkeys(columns, ".1f")), flush=True)
    return {row: list(each.values()) for row, each in known.items()}


def main() -> None:
    """Measure all parts, or the one that is wanted."""
    pages.run(parser(), measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Conditions, and the lowest coverages of each part."""
    sizes = {n: sets for n, sets in zip((500, 2000, 10_000), options.sets, strict=True) if sets}
    said = ", ".join(f"{sets} test sets of {n:,}" for n, sets in sizes.items())
    parts = {
        "models": lambda: all_models(sizes, options),
        "sets": lambda: two_sets(sizes, options),
        "seeds": all_seeds,
        "range": lambda: range_of_use(options),
    }
    wanted = [options.only] if options.only else list(parts)
    said += f", {options.resamples} resamples, smooth errors on {options.smooth}"
    if options.only == "range":
        said = f"200 resamples, {options.range} sets, {options.pairs} pairs"
    machine = {which: f"{said}; {under}" for which, under in pages.machine(*wanted).items()}
    found: dict[str, Any] = {"conditions": machine}
    for name in wanted:
        found |= parts[name]()
    return found


def all_models(sizes: Mapping[int, int], options: argparse.Namespace) -> dict[str, Any]:
    """Lowest coverage of metrics and of their differences, and of what is not used."""
    found: dict[str, dict[str, float]] = defaultdict(dict)
    rejected: dict[str, list[float]] = defaultdict(list)
    for n, sets in sizes.items():
        models, unused, pairs, percentile = one_size(n, sets, options)
        for column, rows in ((f"{n:,}", models), (f"pairs: {n:,}", pairs)):
            for name, coverage in lowest(rows).items():
                found[name][column] = coverage
        for name, coverage in unused.items():
            rejected[name] += coverage
        rejected["differences: percentile"] += lowest(percentile).values()
    return {"lowest": found, "rejected": lowest(rejected)}


def lowest(rows: Mapping[str, list[float]]) -> dict[str, float]:
    """Lowest number of each row that has any."""
    return {name: min(row) for name, row in rows.items() if row}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    rows = figures.get("lowest", {})
    sizes = dict.fromkeys(size for row in rows.values() for size in row)
    columns = dict.fromkeys(sorted(sizes, key=lambda size: "pairs" in size), ".1f")
    seeds = figures.get("seeds", {})
    distributions = dict.fromkeys(next(iter(seeds.values()), ()), ".1f")

    cost = figures.get("cost", dict.fromkeys(("seconds", "sets", "pairs"), math.nan))

    def listed(name: str) -> str:
        return "; ".join(f"{each} {value:.1f}" for each, value in figures.get(name, {}).items())

    return f"""# Coverage of intervals and comparisons

How often 95 % intervals hold a known truth, and how often a difference is found that is not there.
The docstring of the script defines test sets and truths.

    python benchmarks/coverage.py --sets 200 200 60

{pages.conditions(figures)}

Standard error of 95 %: 1.5 points for 200 sets, 2.2 for 100, 2.8 for 60, 4.0 for 30, 7.7 for 8.

## Lowest coverage, %

Of three models (factors 1, calibrated, 1.3 and 0.8 of the logits), and of differences of five
pairs.

{pages.table("samples", rows, columns)}

Out of distribution and against a posterior: {listed("sets")}.

Not used: {listed("rejected")}.

{pages.table("mean over 2 to 10 seeds", seeds, distributions)}

## Wrong verdicts, %

On equal methods with 2 to 10 seeds that have 10 to 90 % of the variance:

{pages.table("variance", figures.get("verdicts", {}), {"lowest": ".1f", "highest": ".1f"})}

## The range of use

Highest share of intervals that are above and below the truth, in % (nominal: 2.5), with its cell:
samples x classes; right; ratio of class frequencies; model. Without: share of test sets in which
the metric has no interval, in %. Up to {SMALL:,} probabilities: {cost["sets"]:.0f} sets, of which
every second has all metrics; in larger cells half of them, with the metrics that decide. Of 100
sets 0 to 6 % miss by a nominal 2.5 %, of 200 sets 0.5 to 5 %.

{pages.table("metric", figures.get("range", {}), MISSES)}

False verdicts over the cells, in %: better or worse of `equal` networks (highest and mean), and
equivalent where the true difference exceeds the margin (highest; empty: none exceeds it). Up to
{SMALL:,} probabilities: {cost["pairs"]:.0f} equal pairs; in larger cells half of them.
Where 5 % are expected, 600 pairs show 3.3 to 6.8 %, 300 pairs 2.7 to 7.7 %.

{pages.table("metric", figures.get("false", {}), FALSE)}

The 14 cells take {cost["seconds"]:.0f} s of one core.

## Limits

- Errors of calibrated models are to hold 0 in 97.5 %, as only the lower end can miss, or in more
  where that end allows for all that resampling adds. They do in 93.3 to 100 % (`smece` with 500
  samples in 7 of 8). `ece_debiased` and `rmsce_debiased` have the intervals of `ece` and `rmsce`.
- The upper end of `ks` is as far up as the lower end is down: 1 % of 250 sets of 500 samples
  (factor 0.8) end below the truth, otherwise 8 %.
- Differences of `squared_ce`, which decide verdicts, have 94 to 98 % with 500 samples, 86 to 100 %
  with 2,000 (50 sets; of 400 sets 94.5 to 97 %, [verdicts](verdicts.md)), 93 to 100 % with 10,000.
- `l1_*` and `l2_*` are bounds that depend on the number of samples: only calibrated models test
  them.
- Overconfident models of 1,000 samples with one or two errors expected: 20 to 53 % of the upper
  ends of `o_ece`, 29 to 48 % of `squared_ce` were below the truth (300 sets); among sets with five
  errors or more at most 3.3 %. So calibration errors have no interval with fewer than five.
- What exceeded 5 % a side was simulated again, with other draws. `ece_sweep` missed below in 8.6 %
  of 370 sets; its upper end is at least as far as the lower one since, and 0 of 120 of these sets
  miss. Others do not exceed it: Brier score of 2,000 x 100, 3.8 % of 400 sets above; `squared_ce`
  of 1,000 x 2, 2.0 % of 500 above; `aece_eq` of 500 x 10, 4.0 % and `smece` of 1,000 x 2, 3.2 % of
  400 below.
- `nll_calibration` of overconfident models (500 sets) missed below in 52 % with 10 to 14 errors,
  11 to 18 % with 15 to 19, at most 4.1 % from 20. So it has no interval with fewer than 20.
- AURC of 200 x 2 with rare classes missed below in 8.2 % of 400 sets: in 13 % of those with fewer
  than 10 errors, 0.6 % of the others. With fewer than 20 it has no interval since. Quantiles of
  resamples missed below in 6.8 % of 400 sets of 1,000 x 2 with rare classes, in 8.0 % of 800
  others: its upper end is log-normal since (of the same 400, 4.5 % miss), its lower end normal. Its
  row of the range of use is of both rules, that of the lowest coverage older.
- Macro AUROC of 500 x 10 missed above in 3.9 % and `nll_calibration` of 200 x 10 below in 1.1 % of
  400 and 600 other sets (those of them with an interval).
- `brier_refinement` missed on a side in 10 to 20 % of the sets of 200 and 500 samples of ten
  classes, and has no interval since.
- The highest false verdicts, again with other draws: of 300 pairs of 10,000 x 10 4.3 % differ in
  accuracy and in balanced accuracy, 4.7 % in Brier score and 6.3 % in NLL; of 1,500 of 200 x 10
  5.2 % in accuracy and 6.1 % in Brier score; of 1,500 of 1,000 x 2 5.5 % in `squared_ce`; of 300 of
  2,000 x 100 3.3 % in Brier score.
- Of 1,500 sets of 500, NumPy's default quantiles of 200 resamples of the mean NLL held 92.7 %, the
  ranks (R + 1) p, used now, 94.4 %, normal intervals 94.3 %.
"""


def one_size(n: int, sets: int, options: argparse.Namespace) -> tuple[dict[str, list[float]], ...]:
    """Coverage on test sets of one size: of models, of constructions that are not used, of pairs of
    models, and of pairs by percentile intervals.
    """
    labelled = [name for name, metric in METRICS.items() if metric.kind == "labelled"]
    counts = {f"factor {factor:g}": single(factor, n, options, sets) for factor in FACTORS}
    shown = {name: count.shown for name, count in counts.items()}
    pairs = {name: paired(name, n, options, sets // 2) for name in PAIRS}
    ours = {name: each.shown for name, (each, _) in pairs.items()}
    percentile = {name: each.shown for name, (_, each) in pairs.items()}
    return (
        table(f"{n:,} samples: coverage, %", labelled, shown),
        table(f"{n:,} samples: other constructions", sorted(tried(counts)), shown),
        table(f"{n:,} samples: differences, %", labelled, ours),
        table(f"{n:,} samples: by percentile intervals", labelled, percentile),
    )


def two_sets(sizes: Mapping[int, int], options: argparse.Namespace) -> dict[str, Any]:
    """Lowest coverage of the metrics that compare a set with another, or with a posterior."""
    ood = {f"{n:,}": out_of_distribution(n, options, sets).shown for n, sets in sizes.items()}
    names = [name for name, metric in METRICS.items() if metric.kind == "ood"]
    to_truth = {
        f"{n:,}, {t:g}": soft(t, n, options, sets).shown
        for n, sets in sizes.items()
        for t in (1.0, 0.7)
    }
    soft_names = ("soft_kl", "soft_tv", "soft_ece")
    found = table("out of distribution, %", names, ood)
    found |= table("to a posterior, % (N, temperature)", soft_names, to_truth)
    return {"sets": lowest(found)}


@dataclasses.dataclass(frozen=True)
class Cell:
    """Test sets of one kind: entries of ``CELLS``."""

    n: int
    k: int
    right: float
    rarest: float

    def __str__(self) -> str:
        rarest = f"; 1 to {1 / self.rarest:g}" if self.rarest < 1 else ""
        return f"{self.n:,} x {self.k:,}; {100 * self.right:g} %{rarest}"

    @functools.cached_property
    def shift(self) -> Floats:
        """Logarithm of the frequency of each class, (k,), up to a constant."""
        return np.log(np.geomspace(1, self.rarest, self.k))

    @functools.cached_property
    def spread(self) -> float:
        """Standard deviation of the logits."""
        draws = np.random.default_rng(0).normal(size=(2_000, self.k))

        def excess(log_spread: float) -> float:
            probs = special.softmax(np.exp(log_spread) * draws + self.shift, axis=1)
            return float(probs.max(axis=1).mean() - self.right)

        lowest = -5.0
        return math.exp(optimize.brentq(excess, lowest, 8)) if excess(lowest) < 0 else 1.0

    def draw(
        self, kind: str, n: int, rng: np.random.Generator
    ) -> tuple[list[Floats], NDArray[np.int64], Floats]:
        """Models, labels and posterior of n samples."""
        logits = self.spread * rng.normal(size=(n, self.k)) + self.shift
        truth = special.softmax(logits, axis=1)
        labels = (truth.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)

        def seen(noise: float) -> Floats:
            return special.softmax(logits + noise * rng.normal(size=(n, self.k)), 1)

        models = {
            "calibrated": lambda: [truth],
            "over": lambda: [special.softmax(1.5 * logits, axis=1)],
            "equal": lambda: [seen(min(0.4 * self.spread, 1)) for _ in range(2)],
            "less": lambda: [truth, seen(0.1 * self.spread)],
        }
        return models[kind](), labels, truth

    def truths(self, kind: str) -> list[dict[str, float]]:
        """Metrics of infinitely many samples, the means over blocks of many."""
        n = max(POPULATION // max(self.k // 10, 1), 10_000)
        rng, blocks = np.random.default_rng(1), []
        for _ in range(TRUTH_BLOCKS):
            models, _, truth = self.draw(kind, n, rng)
            blocks.append([population(probs, truth, kind == "calibrated") for probs in models])
        return [pd.DataFrame(of_model).mean().to_dict() for of_model in zip(*blocks, strict=True)]


def range_of_use(options: argparse.Namespace) -> dict[str, Any]:
    """Highest shares of misses and of false verdicts over the cells; prints those of each."""
    missed: dict[str, dict[str, dict[str, float]]] = {}
    verdicts: dict[str, pd.DataFrame] = {}
    started = time.process_time()
    for cell in itertools.starmap(Cell, CELLS):
        sets = options.range if cell.n * cell.k <= SMALL else options.range // 2
        for kind in ("calibrated", "over"):
            missed[f"{cell}; {kind}"] = misses(cell, kind, sets)
        pairs = options.pairs if cell.n * cell.k <= SMALL else options.pairs // 2
        verdicts[str(cell)] = false_verdicts(cell, {"equal": pairs, "less": sets})
        print(f"{cell}: {sets} sets, {time.process_time() - started:.0f} s", flush=True)
    cost = {"seconds": time.process_time() - started, "sets": options.range, "pairs": options.pairs}
    return {**summary(missed, verdicts), "cost": cost}


def summary(
    missed: Mapping[str, Mapping[str, Mapping[str, float]]], verdicts: Mapping[str, pd.DataFrame]
) -> dict[str, Any]:
    """Worst of the shares of :func:`misses` and :func:`false_verdicts`."""
    rows = {}
    for name in (name for name in METRICS if any(name in each for each in missed.values())):
        shown = pd.DataFrame({cell: each[name] for cell, each in missed.items() if name in each}).T
        worst = shown[["above", "below"]].idxmax()
        rows[name] = {
            "above": shown["above"].max(),
            "in": worst["above"],
            "below": shown["below"].max(),
            "in ": worst["below"],
            "without": 100 - shown["known"].mean(),
        }
    print(pages.table("metric", rows, MISSES))
    tables = pd.concat(verdicts)
    by_metric = tables.groupby(level=1, sort=False)
    false = pd.DataFrame(
        {
            "highest": by_metric["found"].max(),
            "mean": by_metric["found"].mean(),
            "equivalent": by_metric["equivalent"].max(),
        }
    )
    print(tables.to_string(float_format="%.1f"))
    return {"range": rows, "false": false.to_dict("index")}


FALSE = dict.fromkeys(("highest", "mean", "equivalent"), ".1f")
#: intervals of a cell from which there is a share of misses
FEWEST_KNOWN = 20
MISSES = {"above": ".1f", "in": "", "below": ".1f", "in ": "", "without": ".0f"}


def misses(cell: Cell, kind: str, sets: int) -> dict[str, dict[str, float]]:
    """Of each metric the shares, in %, of intervals that are above and below the truth, and of
    sets in which it has one.
    """
    rng, (truth,) = np.random.default_rng([cell.n, cell.k]), cell.truths(kind)
    found: dict[str, list[tuple[bool, bool, bool]]] = defaultdict(list)
    for number in range(sets):
        (probs,), labels, _ = cell.draw(kind, cell.n, rng)
        all_metrics = cell.n * cell.k <= SMALL and number % 2 == 0
        resample = intervals.resampled if all_metrics else intervals.resampled_means
        drawn = resample(probs, labels, n_resamples=200, seed=number)
        for name in drawn.drawn.keys() & truth.keys():
            low, high = intervals.interval(METRICS[name], drawn, TAILS)
            above, below = low > truth[name] + 1e-12, high < truth[name] - 1e-12
            found[name].append((not np.isnan(low), above, below))
    shares = {}
    for name, each in found.items():
        known, above, below = np.array(each).T
        shares[name] = {"known": 100 * known.mean()}
        if known.sum() >= FEWEST_KNOWN:
            shares[name]["above"] = 100 * above[known].mean()
            shares[name]["below"] = 100 * below[known].mean()
    return shares


def false_verdicts(cell: Cell, sets: Mapping[str, int]) -> pd.DataFrame:
    """Of each metric the shares, in %, of pairs without a difference of which one is found better,
    and of pairs that are found equivalent, although they differ by more than the margin; of numbers
    of pairs by their kind.
    """
    rates = {}
    for kind, count in sets.items():
        rng, rows = np.random.default_rng([cell.n, cell.k, 1]), []
        for number in range(count):
            models, labels, _ = cell.draw(kind, cell.n, rng)
            one, other = (intervals.resampled_means(probs, labels, seed=number) for probs in models)
            for name in DECIDING:
                if name in one.drawn:
                    rows.append({"metric": name, **tested(one, other, name), "n_test": cell.n})
        tests = pd.DataFrame(rows).assign(n_seeds=1, std_seed=np.nan)
        rates[kind] = judge(tests, np.arange(len(tests)), of_runs=True)
    found = rates["equal"]["verdict"].isin(FOUND).groupby(rates["equal"]["metric"]).mean()
    same = rates["less"]["verdict"].eq(EQUIVALENT).groupby(rates["less"]["metric"]).mean()
    first, second = cell.truths("less")
    far = {name: abs(first[name] - second[name]) > METRICS[name].margin for name in same.index}
    return 100 * pd.DataFrame({"found": found, "equivalent": same.where(pd.Series(far))})


def tested(one: intervals.Resampled, other: intervals.Resampled, name: str) -> dict[str, float]:
    """Difference of two models and its standard deviation over test samples."""
    products = one.noise.get(name, 0.0) - other.noise.get(name, 0.0)
    variance = intervals.sampling_variance(one.drawn[name] - other.drawn[name], products)
    return {"difference": one.values[name] - other.values[name], "std_test": math.sqrt(variance)}


def all_seeds() -> dict[str, Any]:
    """Lowest coverage of means over seeds, and wrong verdicts, of 20,000 cases each."""
    rng, sets = np.random.default_rng(0), 20_000
    means: dict[str, dict[str, float]] = defaultdict(dict)
    for title, truth, draw in (
        (
            "N(0.97, 0.01^2)",
            0.97,
            lambda size: 0.97 + 0.01 * rng.normal(size=size),
        ),
        ("Beta(2, 98)", 0.02, lambda size: rng.beta(2, 98, size)),
        ("Beta(30, 1)", 30 / 31, lambda size: rng.beta(30, 1, size)),
    ):
        found = {f"{n} seeds": over_seeds(draw((sets, n)).clip(0, 1), truth) for n in (2, 3, 5, 10)}
        rows = table(
            f"mean over seeds, {title}: coverage, %",
            found["2 seeds"],
            {n: each.get for n, each in found.items()},
        )
        for name, coverage in lowest(rows).items():
            means[name][title] = coverage
    wrong = {
        f"{n}, {part:g}": both_sources(n, part, sets)
        for n in (2, 3, 5, 10)
        for part in (0.1, 0.5, 0.9)
    }
    columns = {name: found.get for name, found in wrong.items()}
    rows = table("wrong verdicts, % (seeds, share of variance)", wrong["2, 0.1"], columns)
    verdicts = {name: {"lowest": min(row), "highest": max(row)} for name, row in rows.items()}
    return {"seeds": means, "verdicts": verdicts}


def tried(counts: Mapping[str, Count]) -> set[str]:
    """Names of the constructions that are not used."""
    return {name for count in counts.values() for name in count.held if ":" in name}


def parser() -> argparse.ArgumentParser:
    """Options of the command line."""
    options = argparse.ArgumentParser(
        description="Measure the coverage of intervals and comparisons."
    )
    sizes = "test sets of 500, 2,000 and 10,000 samples, 0 for none (200 200 60)"
    options.add_argument(
        "--only", choices=("models", "sets", "seeds", "range"), help="one part (all)"
    )
    options.add_argument("--sets", type=int, nargs=3, default=[200, 200, 60], help=sizes)
    names = list(ESTIMATORS)
    options.add_argument(
        "--estimators", nargs="+", choices=names, default=names, help="of models and pairs (all)"
    )
    options.add_argument(
        "--resamples", type=int, default=99, help="resamples of each test set (99)"
    )
    options.add_argument(
        "--smooth",
        type=int,
        default=8,
        help="test sets on which the smooth errors are computed (8)",
    )
    options.add_argument(
        "--pairs",
        type=int,
        default=600,
        help="pairs of equal networks of each cell, half of it in large ones (600)",
    )
    options.add_argument(
        "--range",
        type=int,
        default=200,
        help="test sets of each cell of the range of use, half of it in large ones (200)",
    )
    return options


if __name__ == "__main__":
    main()
