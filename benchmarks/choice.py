"""Is the calibrator that a ranking chooses worse than plain temperature scaling?

For each number of rows and classes, networks are drawn: logits of a calibrated model, of which all
are multiplied by a factor, and, in every second network, each class also by its own factor and
shifted by its own constant. ``calgrid calibrate --calibrator all`` ranks on the rows of the fit;
the NLL of its choice, and of the first of the ranking, is compared with that of ``ts`` on other
rows.

    python benchmarks/choice.py --draws 12 --rows 100 300 1000 5000 --classes 7 10 100
"""

import argparse
import sys
from collections import Counter

import numpy as np

from calgrid.calibrators import build_calibrator
from calgrid.metrics import nll
from calgrid.user_logits.ranking import choice, rank_calibrators, usable

#: rows on which the calibrators are scored
SCORED = 20_000


def network(rows: int, classes: int, draw: int) -> tuple[np.ndarray, np.ndarray]:
    """Logits (N, K) and labels (N,) of a network."""
    rng = np.random.default_rng([draw, classes])
    factor = rng.uniform(0.8, 3.0)
    own, shift = np.ones(classes), np.zeros(classes)
    if draw % 2:
        own, shift = rng.uniform(0.8, 1.25, classes), rng.normal(0, 0.5, classes)
    rng = np.random.default_rng([draw, classes, rows])
    logits = rng.normal(size=(rows, classes))
    # a network that is right in about 85 % of the rows
    logits[np.arange(rows), rng.integers(classes, size=rows)] += 2.5 + np.log(classes) / 2
    logits *= 1.5
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return factor * own * logits + shift, labels


def compared(rows: int, classes: int, draw: int, names: list[str]) -> tuple[dict[str, float], str]:
    """NLL on other rows by way of choosing, minus that of ``ts``; and the choice."""
    logits, labels = network(rows, classes, draw)
    ranking, _ = rank_calibrators(logits, labels, candidates=names, n_resamples=200)
    others, truth = network(SCORED, classes, draw)
    ways = {"choice": choice(ranking).id, "first": ranking[0].id, "ts": "ts", "none": "none"}
    found = {}
    for id in set(ways.values()):
        fitted = build_calibrator(id, seed=0).fit(logits, labels)
        found[id] = nll(fitted.predict_output(others), truth)
    return {way: found[id] - found["ts"] for way, id in ways.items()}, ways["choice"]


def main() -> None:
    """Print a table with one row for each number of rows and classes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000, 5000])
    parser.add_argument("--classes", type=int, nargs="+", default=[7, 10, 100])
    parser.add_argument("--calibrators", nargs="+", help="those that are ranked (all)")
    options = parser.parse_args()
    print("| classes | rows | choice | first of the ranking | none | chosen |")
    print("| ---: | ---: | ---: | ---: | ---: | --- |")
    for classes in options.classes:
        names = options.calibrators or usable(classes)[0]
        for rows in options.rows:
            drawn = [compared(rows, classes, draw, names) for draw in range(options.draws)]
            cells = []
            for way in ("choice", "first", "none"):
                values = 1000 * np.array([found[way] for found, _ in drawn])
                error = values.std(ddof=1) / np.sqrt(len(values))
                cells.append(f"{values.mean():+.1f} ± {error:.1f}")
            counts = Counter(name for _, name in drawn)
            chosen = ", ".join(f"{name} {count}" for name, count in counts.most_common())
            print(f"| {classes} | {rows:,} | {' | '.join(cells)} | {chosen} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
