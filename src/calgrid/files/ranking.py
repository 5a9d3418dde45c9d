"""Ranking of calibrators for given logits by cross-validation on the rows of the fit, never on test
rows.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators import build_calibrator
from calgrid.components import registry
from calgrid.errors import ConfigError, DataError
from calgrid.metrics import check_probabilities, evaluate
from calgrid.metrics.intervals import Resampled, difference_interval, interval, resampled, tails_of
from calgrid.metrics.table import LABELLED, Metric
from calgrid.plugin_metrics import find_metric, own_metrics, ranking_metrics
from calgrid.progress import Progress

Array = NDArray[np.float64]
Head = tuple[Array, Array]


@dataclass(frozen=True)
class Ranked:
    """A calibrator and its cross-validated scores."""

    id: str
    #: metric -> (value, lower, upper) of the out-of-fold probabilities of all rows
    scores: dict[str, tuple[float, float, float]]
    #: ranking metric minus that of the best, with a paired bootstrap interval; (0, 0, 0) for the
    #: best
    difference: tuple[float, float, float]
    #: of one fit, mean over folds
    seconds: float
    #: fraction of rows whose arg max changes
    changed: float

    @property
    def tied(self) -> bool:
        """Whether the calibrator ties with the best one: the interval of the difference contains 0."""
        return self.difference[1] <= 0 <= self.difference[2]


def usable(features: Any = None, head: Any = None) -> list[str]:
    """Return the ids of all calibrators whose inputs are available, in alphabetical order, ``none``
    first.

    Slow calibrators (minutes per fit) are not included.
    """
    given = {
        "logits",
        *(["features"] if features is not None else []),
        *(["head"] if head is not None else []),
    }
    specs = registry.specs("calibrator")
    ids = [
        id
        for id, spec in specs.items()
        if set(spec.info["needs"]) <= given and not spec.info["slow"]
    ]
    return sorted(ids, key=lambda id: (id != "none", id))


def rank_calibrators(
    logits: Any,
    labels: Any,
    features: Any = None,
    head: Head | None = None,
    *,
    candidates: Sequence[str] | None = None,
    rank_by: str = "nll",
    folds: int = 5,
    seed: int = 0,
    n_bins: int = 15,
    n_resamples: int = 1000,
    level: float = 0.95,
) -> tuple[list[Ranked], dict[str, str]]:
    """Rank calibrators by a cross-validated metric, the best first.

    All calibrators use the same folds and resamples, so that differences are paired. Fits on folds
    use fewer rows than a final fit on all rows, which is a slight disadvantage for calibrators with
    many parameters.

    Parameters
    ----------
    logits : (N, K). labels : (N,). features : (N, d), head : weight (K, d) and bias (K,), optional.
    candidates : ids; by default those of :func:`usable`.
    rank_by : metric of predictions with labels that has ranks; plugin metrics are allowed.
    folds : at least 2 and at most N. seed : seed of folds, calibrators and resamples.
    n_resamples : number of bootstrap resamples. level : nominal coverage of the intervals.

    Returns
    -------
    The ranking, and the calibrators that cannot be fitted on these data with the reason.

    Raises
    ------
    DataError : an input is invalid. ConfigError : ``folds`` or ``rank_by`` is invalid, or no
        calibrator can be fitted.
    """
    if rank_by not in (known := ranking_metrics()):
        raise registry.missing(["metric"], "metric", rank_by, known, "rank_by")
    scores, rows = np.asarray(logits), None if features is None else np.asarray(features)
    if not 2 <= folds <= len(scores):
        raise ConfigError(
            f"folds must be at least 2 and at most the {len(scores)} rows, got {folds}."
        )
    fold = np.random.default_rng(seed).permutation(len(scores)) % folds
    further = own_metrics([rank_by])
    shared = _Shared(
        scores, np.asarray(labels), rows, head, fold, seed, n_bins, n_resamples, level, further
    )
    found, refused = _measure_all(
        shared, usable(features, head) if candidates is None else candidates
    )
    metric = find_metric(rank_by)
    values = {id: one.scores[rank_by][0] for id, (one, _) in found.items()}
    order = sorted(
        found,
        key=lambda id: (
            np.isnan(values[id]),
            values[id] if metric.lower_is_better else -values[id],
        ),
    )
    best = found[order[0]][1]

    def ranked(id: str) -> Ranked:
        one, drawn = found[id]
        low = high = 0.0 if id == order[0] else np.nan
        if id != order[0] and drawn and best:
            low, high = difference_interval(metric, drawn, best, tails_of(level))
        return replace(one, difference=(values[id] - values[order[0]], low, high))

    return [ranked(id) for id in order], refused


#: scores of a calibrator, without its difference from the best one, and their bootstrap resamples
Measured = tuple[Ranked, Resampled | None]


@dataclass(frozen=True)
class _Shared:
    """Data and options that all calibrators share."""

    logits: Array
    labels: NDArray[np.int64]
    features: Array | None
    head: Head | None
    fold: NDArray[np.int64]
    seed: int
    n_bins: int
    n_resamples: int
    level: float
    further: Sequence[Metric]

    def out_of_fold(self, id: str) -> tuple[Array, float]:
        """Out-of-fold probabilities (N, K), and the mean seconds of a fit."""
        probs, seconds = np.empty(self.logits.shape), []
        for number in range(self.fold.max() + 1):
            held = self.fold == number
            given, asked = (
                None if self.features is None else self.features[rows] for rows in (~held, held)
            )
            calibrator = build_calibrator(id, seed=self.seed)
            calibrator.fit(self.logits[~held], self.labels[~held], given, self.head)
            probs[held] = calibrator.predict_proba(self.logits[held], asked)
            seconds.append(calibrator.fit_seconds or 0.0)
        return probs, float(np.mean(seconds))

    def measure(self, id: str) -> Measured:
        probs, seconds = self.out_of_fold(id)
        predictions = check_probabilities(probs, self.labels)
        options: dict[str, Any] = {"n_bins": self.n_bins, "further": self.further}
        drawn, bounds = None, {}
        if self.n_resamples:
            drawn = resampled(
                predictions, self.labels, n_resamples=self.n_resamples, seed=self.seed, **options
            )
            metrics = (*LABELLED.values(), *self.further)
            bounds = {
                metric.id: interval(metric, drawn, tails_of(self.level)) for metric in metrics
            }
        values = evaluate(predictions, self.labels, **options)
        scores = {
            name: (value, *bounds.get(name, (np.nan, np.nan))) for name, value in values.items()
        }
        # a tie with the old arg max is no change
        top = np.take_along_axis(probs, self.logits.argmax(axis=1)[:, None], axis=1)[:, 0]
        return Ranked(
            id, scores, (0.0, 0.0, 0.0), seconds, float((top < probs.max(axis=1)).mean())
        ), drawn


def _measure_all(shared: _Shared, ids: Sequence[str]) -> tuple[dict[str, Measured], dict[str, str]]:
    found: dict[str, Measured] = {}
    refused: dict[str, str] = {}
    with Progress("rank", len(ids), "calibrator") as progress:
        for id in ids:
            try:
                found[id] = shared.measure(id)
            except (ConfigError, DataError) as error:
                refused[id] = str(error)
            progress.advance()
    if not found:
        raise ConfigError(
            f"No calibrator can be fitted on these data: "
            f"{next(iter(refused.values()), 'none named')}"
        )
    return found, refused
