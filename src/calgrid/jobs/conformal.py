"""Conformal sets after a calibrator: rows for its fit, rows for thresholds, and metrics of the
sets.

Of the validation rows for fits, a random half fits the calibrator; of the other half, 30 % choose
the penalties of scores and 70 % set the thresholds. One uniform number belongs to each row.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from calgrid.metrics.conformal import SetRule, bootstrap_sets, evaluate_sets, sets_of
from calgrid.storage.schema import Row

#: name of a random stream
HALVES = zlib.crc32(b"halves")

Rows = NDArray[np.intp]


def halves(n_samples: int, seed: int) -> tuple[Rows, Rows]:
    """Return the rows to fit a calibrator, ascending, and the rows for sets, in random order."""
    order = np.random.default_rng([seed, HALVES]).permutation(n_samples)
    middle = -(-n_samples // 2)
    return np.sort(order[:middle]), order[middle:]


def uniform(n_samples: int, seed: int, name: str, *place: int) -> NDArray[np.float64]:
    """Return a uniform number for each row of a set of samples."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), *place]).uniform(size=n_samples)


def set_rows(
    rules: Sequence[SetRule],
    probs: NDArray[np.float64],
    labels: NDArray[np.integer],
    u: NDArray[np.float64],
    bootstrap: Mapping[str, int] | None,
    level: float,
) -> Iterator[Row]:
    """Yield the rows of ``conformal.parquet`` of one set of samples, without its place.

    ``bootstrap`` are the options of intervals of a confidence ``level``, None for none.
    """
    sizes, covered = sets_of(rules, probs, labels, u)
    bounds: list[dict[str, tuple[float, float]]] = [{} for _ in rules]
    if bootstrap is not None:
        alphas = [rule.alpha for rule in rules]
        bounds = bootstrap_sets(sizes, covered, labels, alphas, level=level, **bootstrap)
    for number, rule in enumerate(rules):
        found = evaluate_sets(sizes[number], covered[number], labels, rule.alpha)
        for metric, value in found.items():
            low, high = bounds[number].get(metric, (np.nan, np.nan))
            yield {
                "conformal": rule.score,
                "alpha": rule.alpha,
                "metric": metric,
                "value": float(value[0]),
                "ci_low": low,
                "ci_high": high,
                "n_samples": len(labels),
                "n_threshold": rule.n_threshold,
                "threshold": rule.threshold,
                "penalty": rule.penalty,
            }
