"""Is the calibrator that a ranking chooses worse than plain temperature scaling?

::

    python benchmarks/choice.py --draws 12 --rows 100 300 1000 5000 --classes 7 10 100
"""

import argparse
from collections import Counter
from typing import Any

import numpy as np

import pages
from calgrid.calibrators import build_calibrator
from calgrid.logits.ranking import choice, rank_calibrators, usable
from calgrid.metrics import nll

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


def measured(options: argparse.Namespace) -> dict[str, Any]:
    """Mean and standard error over networks of each way, and how often each was the choice."""
    found: dict[str, Any] = {}
    for classes in options.classes:
        names = options.calibrators or usable(classes)[0]
        for rows in options.rows:
            drawn = [compared(rows, classes, draw, names) for draw in range(options.draws)]
            row: dict[str, Any] = {}
            for way in ("choice", "first", "none"):
                values = 1000 * np.array([each[way] for each, _ in drawn])
                row[way] = float(values.mean())
                row[f"{way} ±"] = float(values.std(ddof=1) / np.sqrt(len(values)))
            counts = Counter(name for _, name in drawn)
            row["chosen"] = ", ".join(f"{name} {count}" for name, count in counts.most_common())
            found[f"{classes}, {rows:,}"] = row
    return {"networks": found}


def page(figures: dict[str, Any]) -> str:
    """The page of the figures."""
    columns = {"choice": "+.1f", "choice ±": ".1f", "first": "+.1f", "first ±": ".1f", "chosen": ""}
    return f"""# The choice of a calibrator

The choice of `calgrid calibrate --calibrator all` on the rows of the fit, and the first of its
ranking, compared with plain `ts` on {SCORED:,} other rows.

    python benchmarks/choice.py --draws 10 --classes 7 10
    python benchmarks/choice.py --draws 4 --classes 100            # 2 draws of 5,000 rows

NLL minus that of `ts`, in thousandths of a nat, mean over networks and its standard error. Logits
are drawn: of a calibrated model that is right in about 85 % of the rows, times 0.8 to 3; in every
second network each class also has a factor and a constant of its own.

{pages.table("classes, rows", figures["networks"], columns)}

The choice is `ts` on a hundred rows, and nowhere worse than it by two standard errors. The first of
the ranking can be far worse on few rows. With 100 classes the choice left a gain that 1,000 rows
did not prove. Without calibration the NLL is higher by 126 to 1,223 thousandths.
"""


def main() -> None:
    """Compare the choice with temperature scaling."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--rows", type=int, nargs="+", default=[100, 300, 1000, 5000])
    parser.add_argument("--classes", type=int, nargs="+", default=[7, 10, 100])
    parser.add_argument("--calibrators", nargs="+", help="those that are ranked (all)")
    pages.run(parser, measured, page, __file__)


if __name__ == "__main__":
    main()
