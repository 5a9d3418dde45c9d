"""Out-of-distribution scores of logits and features, and means over groups of sets."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from calgrid.errors import DataError
from calgrid.metrics import METRICS
from calgrid.metrics.intervals import Resampled, interval
from calgrid.metrics.ood import NEIGHBOUR, energy, fit_vim, knn, max_logit, vim
from calgrid.progress import log
from calgrid.storage.arrays import Head
from calgrid.storage.logits import Logits
from calgrid.storage.schema import RESAMPLE_PLACE, Row

Scores = dict[object, tuple[NDArray[np.float64], ...]]
Features = NDArray[np.float32]
Rows = list[Row]
#: what a mean over test sets keeps
AVERAGED = (*(name for name in RESAMPLE_PLACE if name != "shift"), "metric")
#: largest energy of logarithms of probabilities, in float32
ROUNDING = 1e-3


def network_scores(
    name: str, test: Logits, shifted: Logits, train: Logits | None, head: Head | None
) -> Scores:
    """Scores of the test images and of the out-of-distribution set ``name``, by scoring function;
    the log names undefined ones.

    Logarithms of probabilities have no offset, so neither MaxLogit nor energy. kNN and ViM need
    features of ``train``, ViM a linear last layer, too.
    """
    found: Scores = {}
    sets = test, shifted
    if np.abs(energy(test.logits)).max() < ROUNDING:
        log(f"No MaxLogit and energy on {name}: logits are logarithms of probabilities.")
    else:
        for score in (max_logit, energy):
            found[score] = tuple(score(rows.logits) for rows in sets)
    features = [rows.features for rows in sets if rows.features is not None]
    if train is None or train.features is None or len(features) < len(sets):
        return found
    found[knn] = tuple(closeness(values, train) for values in features)
    if head is None:
        log(f"No ViM on {name}: the last layer is not linear.")
        return found
    try:
        fitted = fit_vim(train.features, train.logits, *head)
    except DataError as error:
        log(f"No ViM on {name}: {error}")
        return found
    logits = [rows.logits for rows in sets]
    found[vim] = tuple(vim(*each, fitted) for each in zip(features, logits, strict=True))
    return found


def closeness(features: Features, train: Logits) -> NDArray[np.float64]:
    """Score of kNN of features (N, d); k is 50, but at most the mean number of training images of a
    class: among few images, those of other classes would be the nearest.
    """
    k = max(1, min(NEIGHBOUR, len(train) // train.logits.shape[1]))
    return knn(features, cast(Features, train.features), k)


def rows_alike(rows: Iterable[Row], keys: Sequence[str]) -> Iterable[Rows]:
    """Rows that have the same ``keys``, in order of appearance."""
    found: dict[tuple[Any, ...], Rows] = defaultdict(list)
    for row in rows:
        found[tuple(row[key] for key in keys)].append(row)
    return found.values()


def of_groups(rows: Rows, groups: Mapping[str, Sequence[str]]) -> Iterator[tuple[str, Rows]]:
    """Rows that differ in their out-of-distribution set alone, of each group with several sets."""
    for group, names in groups.items():
        for found in rows_alike((row for row in rows if row["shift"] in names), AVERAGED):
            if len(found) == len(names) > 1:
                yield group, found


def mean_draws(rows: Rows, shift: str, severity: int) -> Row:
    """Mean of rows of ``resamples.parquet``, as a row of this ``shift`` and ``severity``."""
    mean = {**rows[0], "shift": shift, "severity": severity}
    for name in ("draws", "pairs"):
        mean[name] = np.mean([row[name] for row in rows], axis=0, dtype=np.float64).tolist()
    return mean


def group_metrics(
    rows: Rows, resamples: Rows, groups: Mapping[str, Sequence[str]], tails: tuple[float, float]
) -> Rows:
    """Means of rows of ``metrics.parquet`` over the sets of each group, with the smallest number of
    samples and the intervals of those with ``resamples``.
    """
    draws = {}
    for row in resamples:
        if row["shift"] in groups:
            draws[row["shift"], *(row[key] for key in AVERAGED)] = row["draws"]
    means = []
    for group, found in of_groups(rows, groups):
        metric, value = found[0]["metric"], float(np.mean([row["value"] for row in found]))
        count = min(row["n_samples"] for row in found)
        mean = {**found[0], "shift": group, "value": value, "n_samples": count}
        low = high = np.nan
        drawn = draws.get((group, *(mean[key] for key in AVERAGED)))
        if drawn is not None:
            shifted = {metric: value + np.array(drawn)}
            resampled = Resampled({metric: value}, shifted, {}, {}, count)
            low, high = interval(METRICS[metric], resampled, tails)
        means.append({**mean, "ci_low": low, "ci_high": high})
    return means
