"""Measure how often the rule of all verdicts is wrong, and what it finds.

    python benchmarks/verdicts.py --store

Part 1: eight methods and a baseline with simulated networks. The posterior of an image is
softmax(z) with z normal. The logits of a method are factor * (z + a fixed error of the method on
each image + an error of each seed on each image), with a factor that varies over seeds. All methods
are equal in expectation; for power, one has another factor. Part 2: normal differences over seeds
and test images, of methods with equal deviations or with one of fourfold deviation. Part 3: two
models of one seed, whose calibration differs or not, for test sets of several sizes, with three
constructions of the standard error. Part 4: the same for errors that are tested as printed.
"""

import argparse
import functools
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

import pages
from calgrid.metrics import METRICS as ALL_METRICS
from calgrid.metrics import _estimators, binning, check_probabilities
from calgrid.metrics.intervals import (
    Resampled,
    averaged,
    resample_weights,
    resampled_means,
    sampling_variance,
)
from calgrid.metrics.table import PRINTED_ERRORS
from calgrid.statistics.verdicts import FOUND, detectable_deviations, judge, seed_prior

Floats = NDArray[np.float64]
METHODS, CLASSES = 8, 10
METRICS = ("accuracy", "nll", "brier", "squared_ce", "nll_calibration", "nll_refinement")


def main() -> None:
    """Measure all parts."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sets", type=int, default=100, help="simulated studies per line")
    pages.run(parser, measured, page, __file__)


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Figures of the four parts."""
    return {
        "networks": networks(options.sets),
        "normal": normal(),
        **pairs(options.sets),
        "printed": printed(options.sets),
    }


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    networks = pages.table(
        "found, %: images, seeds", figures["networks"], dict.fromkeys(("sets", *METRICS), ".0f")
    )
    return f"""# Level and power of verdicts

How often [the rule](../docs/statistics.md#the-rule) gives a false verdict, and what it finds:
`better` or `worse` at a family-wise error of 5 %, with {METHODS} methods against a baseline.

    python benchmarks/verdicts.py

Its docstring has the simulations. A rate of 5 % is measured as 1 to 10 % in 100 sets, as 0 to 15 %
in 20.

## Simulated networks

Any false: studies with a false verdict on any of {METHODS} equal methods. Found: studies that find
the one method with logits times 1.3, which differs in calibration alone.

{networks}

Of 28 November 2026. The next day, after the changes for small counts, all verdicts of the first 20
sets of 2,000 images were the same, and so was every figure of the other parts.

## Normal differences

Images: variance over test images, in variances of the mean over seeds. Any false: in % of 2,000
families, with equal deviations or a fourfold one of one or half of the methods. Found, in %: one
method that differs by so many deviations of a method over seeds (SD). Detectable: in SD, with a
power of 80 %, without variance over images.

{pages.table("seeds, images", figures["normal"], NORMAL)}

## The squared calibration error of two models

Two networks of ten classes: equal, calibrated (sharp, flat), or with logits times these factors. By
images: share of test sets whose interval holds the difference, and with a verdict, in %. Used:
linear and product parts of the change under resampling, bins of equal width. Plain: the standard
deviation (SD) of the resampled values. Mass: as used, bins of equal mass.

{pages.table("case", figures["pairs"], PAIRS)}

{pages.table("not used", figures["not used"], NOT_USED)}

## Printed errors

Two networks as above: share of test sets with a verdict on errors that are tested as printed, in %;
of equal networks it is false. Calibrated: equal networks with logits times 0.75.

{pages.table("images, case", figures["printed"], dict.fromkeys(("sets", *PRINTED_ERRORS), ".0f"))}
"""


#: columns and their formats
NORMAL = {
    **dict.fromkeys(("any false, equal", "one fourfold", "half fourfold"), ".1f"),
    **dict.fromkeys(("found, 2 SD", "3 SD", "5 SD"), ".0f"),
    "detectable": ".1f",
}
PAIRS = {
    f"{images}: {name}": form
    for images in ("500", "2,000", "10,000")
    for name, form in (("held", ".1f"), ("verdict", ".0f"))
}
NOT_USED = {"held": "", "verdict on 1, 1.3; 500": ".0f", "median SD, in those used": ""}


def networks(sets: int) -> dict[str, dict[str, float]]:
    """Part 1."""
    rows, false = {}, []
    for n in (500, 2000, 10_000):
        for seeds in (3, 5, 10) if n < 2000 else (3,):
            count = sets if n < 10_000 else sets // 5
            equal = [study(n, seeds, 1.0, number) for number in range(count)]
            other = [study(n, seeds, 1.3, number) for number in range(count)]
            false.append([np.mean([each[metric].any() for each in equal]) for metric in METRICS])
            found = {metric: percent([each[metric][0] for each in other]) for metric in METRICS}
            rows[f"{n:,}, {seeds}"] = {"sets": count, **found}
    highest = 100 * np.max(false, axis=0)
    rows["any false, highest"] = dict(zip(METRICS, highest.tolist(), strict=True))
    return rows


def percent(verdicts: ArrayLike) -> float:
    """Share of what is true, in %."""
    return 100 * float(np.mean(verdicts))


def study(n: int, seeds: int, factor: float, number: int) -> dict[str, NDArray[np.bool_]]:
    """Which of the methods are found better or worse than the baseline, by metric."""
    rng = np.random.default_rng([n, seeds, int(10 * factor), number])
    z = 2 * rng.normal(size=(n, CLASSES))
    posterior = special.softmax(z, axis=1)
    labels = (posterior.cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    runs: list[list[Resampled]] = []
    for method in range(METHODS + 1):
        own = z + 0.5 * rng.normal(size=z.shape)
        scale = factor if method == 1 else 1.0
        runs.append([])
        for _ in range(seeds):
            logits = scale * np.exp(0.05 * rng.normal()) * (own + 0.4 * rng.normal(size=z.shape))
            probs = special.softmax(logits, axis=1)
            runs[-1].append(resampled_means(probs, labels))
    base, *others = runs
    tests = pd.concat([difference(each, base, place) for place, each in enumerate(others)])
    tests = tests.assign(prior=seed_prior(tests, tests["metric"]))
    judged = judge(tests, tests["metric"])
    return {
        metric: judged.loc[judged["metric"] == metric, "verdict"].isin(FOUND).to_numpy()
        for metric in METRICS
    }


def difference(mine: list[Resampled], base: list[Resampled], place: int) -> pd.DataFrame:
    """Tests of two methods, one row a metric."""
    rows = []
    one, other = averaged(mine), averaged(base)
    for metric in METRICS:
        by_seed = np.array(
            [a.values[metric] - b.values[metric] for a, b in zip(mine, base, strict=True)]
        )
        pairs = one.noise.get(metric, 0.0) - other.noise.get(metric, 0.0)
        variance = sampling_variance(one.drawn[metric] - other.drawn[metric], pairs)
        rows.append(
            {
                "metric": metric,
                "difference": by_seed.mean(),
                "n_seeds": len(by_seed),
                "std_seed": by_seed.std(ddof=1) if len(by_seed) > 1 else np.nan,
                "std_test": np.sqrt(variance),
            }
        )
    return pd.DataFrame(rows).set_axis(place * len(METRICS) + np.arange(len(METRICS)))


def normal() -> dict[str, dict[str, float]]:
    """Part 2."""
    rows = {}
    for seeds in (2, 3, 5, 10):
        for images in (0.0, 3.0):
            false = [families(seeds, images, case)[0] for case in ("equal", "one", "half")]
            found = [families(seeds, images, "equal", effect)[1] for effect in (2, 3, 5)]
            least = detectable_deviations(seeds, METHODS) * 2**0.5
            shown = [*(100 * each for each in (*false, *found)), least]
            rows[f"{seeds}, {images:g}"] = dict(zip(NORMAL, shown, strict=True))
    return rows


def families(seeds: int, images: float, case: str, effect: float = 0.0) -> tuple[float, float]:
    """Share of families with any verdict, and share with a verdict on the first method."""
    sets, rng = 2000, np.random.default_rng([seeds, int(10 * images), int(effect)])
    deviation = np.ones(METHODS)
    deviation[: {"equal": 0, "one": 1, "half": METHODS // 2}[case]] = 4
    values = deviation * rng.normal(size=(sets, seeds, METHODS)) - rng.normal(size=(sets, seeds, 1))
    std_test = np.sqrt(images * 2 / seeds)
    shared = rng.normal(size=(sets, METHODS)) + rng.normal(size=(sets, 1))
    mean = values.mean(axis=1) + std_test * shared / 2**0.5
    mean[:, 0] += effect
    estimated = std_test * np.sqrt(rng.chisquare(199, size=mean.shape) / 199)
    tests = pd.DataFrame(
        {
            "metric": "nll",
            "difference": mean.ravel(),
            "n_seeds": seeds,
            "std_seed": values.std(axis=1, ddof=1).ravel(),
            "std_test": estimated.ravel(),
        }
    )
    studies = np.repeat(np.arange(sets), METHODS)
    judged = judge(tests.assign(prior=seed_prior(tests, studies)), studies)
    found = judged["verdict"].isin(FOUND).to_numpy().reshape(sets, METHODS)
    return float(found.any(axis=1).mean()), float(found[:, 0].mean())


def scaled(first: float, second: float) -> Callable[[Floats, np.random.Generator], list[Floats]]:
    """Two models with logits times these factors."""
    return lambda z, rng: [special.softmax(factor * z, axis=1) for factor in (first, second)]


def sharp_and_flat(z: Floats, rng: np.random.Generator) -> list[Floats]:
    """A model that knows the posterior, and one that knows it for half of the images."""
    known = rng.random((len(z), 1)) < 0.5
    flat = special.softmax(1e-3 * rng.normal(size=z.shape), axis=1)
    posterior = special.softmax(z, axis=1)
    return [posterior, np.where(known, posterior, flat)]


def two_networks(z: Floats, rng: np.random.Generator, factor: float = 1.0) -> list[Floats]:
    """Two overconfident models with errors of the same size, not the same errors."""
    noisy = [z + 0.6 * rng.normal(size=z.shape) for _ in range(2)]
    return [special.softmax(factor * each, axis=1) for each in noisy]


def pairs(sets: int) -> dict[str, Any]:
    """Part 3."""
    cases = {
        "equal networks": two_networks,
        "sharp, flat": sharp_and_flat,
        "1, 1.1": scaled(1, 1.1),
        "1, 1.2": scaled(1, 1.2),
        "1, 1.3": scaled(1, 1.3),
        "1.3, 0.8": scaled(1.3, 0.8),
    }
    rows: dict[str, dict[str, float]] = defaultdict(dict)
    others: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    example = {}
    for name, models in cases.items():
        truths = [one_pair(models, 50_000, seed, resamples=2) for seed in range(1000, 1004)]
        truth = pd.DataFrame(truths)[["width", "mass"]].mean()
        for n in (500, 2000, 10_000):
            count = 4 * sets if n < 10_000 else sets
            found = pd.DataFrame([one_pair(models, n, seed) for seed in range(count)])
            held, verdict = told(found["width"], found["used"], truth["width"])
            rows[name] |= {f"{n:,}: held": held, f"{n:,}: verdict": verdict}
            for other, bins, std in (("plain", "width", "plain"), ("mass", "mass", "std_mass")):
                ratio = found[std].median() / found["used"].median()
                others[other].append((*told(found[bins], found[std], truth[bins]), ratio))
                if (name, n) == ("1, 1.3", 500):
                    example[other] = others[other][-1][1]
    not_used = {}
    for other, found in others.items():
        held, _, ratio = zip(*found, strict=True)
        shown = (
            f"{min(held):.1f} to {max(held):.1f}",
            example[other],
            f"{min(ratio):.2f} to {max(ratio):.2f}",
        )
        not_used[other] = dict(zip(NOT_USED, shown, strict=True))
    return {"pairs": rows, "not used": not_used}


def printed(sets: int) -> dict[str, dict[str, float]]:
    """Part 4."""
    cases = {
        "equal networks": two_networks,
        "calibrated": functools.partial(two_networks, factor=0.75),
        "1, 1.3": scaled(1, 1.3),
    }
    rows = {}
    for n, count in ((500, 2 * sets), (2000, sets)):
        for name, models in cases.items():
            found = pd.DataFrame([printed_errors(models, n, seed) for seed in range(count)])
            verdicts = {
                metric: told(found[metric], found[f"{metric} std"], 0.0)[1]
                for metric in PRINTED_ERRORS
            }
            rows[f"{n:,}, {name}"] = {"sets": count, **verdicts}
    return rows


def printed_errors(
    models: Callable[[Floats, np.random.Generator], list[Floats]], n: int, seed: int
) -> dict[str, float]:
    """Differences of errors of two models on one test set, and their standard errors."""
    rng = np.random.default_rng([n, seed])
    z = 2 * rng.normal(size=(n, CLASSES))
    labels = (special.softmax(z, axis=1).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    values, draws = [], []
    for probs in models(z, rng):
        predictions = check_probabilities(probs, labels)
        values.append(
            [ALL_METRICS[name].function(predictions, labels, 15) for name in PRINTED_ERRORS]
        )
        drawn = {}
        for make in (_estimators._sorted, _estimators._classwise):
            drawn |= make(predictions, 15)(weights(n, 200)).values
        draws.append(np.array([drawn[name] for name in PRINTED_ERRORS]))
    std = np.sqrt(sampling_variance(draws[0] - draws[1]))
    found = dict(zip(PRINTED_ERRORS, np.subtract(*values).tolist(), strict=True))
    return found | {f"{name} std": each for name, each in zip(PRINTED_ERRORS, std, strict=True)}


def told(difference: pd.Series, std_test: pd.Series, truth: float) -> tuple[float, float]:
    """Coverage of the intervals and share of verdicts, in %."""
    tests = pd.DataFrame({"difference": difference, "std_test": std_test})
    tests = tests.assign(metric="squared_ce", n_seeds=1, std_seed=np.nan)  # any with ranks
    judged = judge(tests, np.arange(len(tests)), of_runs=True)
    held = judged["ci_low"].le(truth) & judged["ci_high"].ge(truth)
    return percent(held), percent(judged["verdict"].isin(FOUND))


def one_pair(
    models: Callable[[Floats, np.random.Generator], list[Floats]],
    n: int,
    seed: int,
    resamples: int = 200,
) -> dict[str, float]:
    """Differences of the squared errors of two models on one test set in bins of equal ``width``
    and ``mass``, and standard errors: ``used``, ``plain`` and ``std_mass``.
    """
    rng = np.random.default_rng([n, seed])
    z = 2 * rng.normal(size=(n, CLASSES))
    labels = (special.softmax(z, axis=1).cumsum(axis=1) > rng.random((n, 1))).argmax(axis=1)
    drawn = weights(n, resamples)
    predictions = [check_probabilities(each, labels) for each in models(z, rng)]
    found = {}
    for bins, index in (("width", binning.bin_index), ("mass", by_mass)):
        with mock.patch.object(binning, "bin_index", index):
            value, other_value = (
                ALL_METRICS["squared_ce"].function(p, labels, 15) for p in predictions
            )
            one, other = (_estimators._squared(each, 15)(drawn) for each in predictions)
        linear, products = (
            getattr(one, part)["squared_ce"] - getattr(other, part)["squared_ce"]
            for part in ("values", "noise")
        )
        found[bins] = value - other_value
        name = "used" if bins == "width" else "std_mass"
        found[name] = float(np.sqrt(sampling_variance(linear, products)))
        found.setdefault("plain", float((linear + products).std(ddof=1)))
    return found


@functools.cache
def weights(n: int, resamples: int) -> Floats:
    """Weights (R, n) of the samples in each resample."""
    return np.concatenate(list(resample_weights(n, resamples, 0)))


def by_mass(confidence: Floats, n_bins: int) -> NDArray[np.intp]:
    """Bin (n,) of each confidence, in bins of equal numbers of samples."""
    rank = confidence.argsort(kind="stable").argsort(kind="stable")
    return rank * n_bins // len(rank)


if __name__ == "__main__":
    main()
