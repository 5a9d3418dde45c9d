"""Ranking of calibrators by cross-validation on the rows of the fit, never on test rows."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calgrid.calibrators import build_calibrator
from calgrid.components import registry
from calgrid.components.metrics import check_computed, find_ranking_metric, plugin_metrics
from calgrid.errors import ConfigError, DataError
from calgrid.metrics import Metric, Output, Predictions, check_probabilities, evaluate
from calgrid.metrics.intervals import Estimate, Resampled, interval, resampled, tails_of
from calgrid.metrics.table import LABELLED
from calgrid.progress import Progress
from calgrid.statistics.sampling import against_one
from calgrid.statistics.verdicts import BETTER, NO_VERDICT
from calgrid.storage.arrays import Head

Array = NDArray[np.float64]
#: nominal coverage of the intervals
LEVEL = 0.95
NONE = "none"
#: calibrators to test others against, in this order
SIMPLEST = ("ts", NONE)
NO_DIFFERENCE = Estimate(0, 0, 0)


@dataclass(frozen=True)
class Ranked:
    """Cross-validated scores of a calibrator, and its place in a ranking."""

    id: str
    #: by metric, of the out-of-fold probabilities of all rows
    scores: dict[str, Estimate]
    #: of one fit, mean over folds
    seconds: float
    #: fraction of rows whose arg max changes
    changed: float
    #: whether the fits of all folds converged
    converged: bool = True
    #: behind the intervals; None without
    resamples: Resampled | None = None
    #: ranking metric minus that of the reference, with a paired interval; zeros for the reference
    difference: Estimate = NO_DIFFERENCE
    #: against the reference, by the rule of :mod:`calgrid.statistics.verdicts` for these rows; the
    #: others but ``none`` are one family. Empty for the reference
    verdict: str = ""
    #: difference that would be found with a probability of 80 %
    detectable: float = float("nan")


def reference(ranking: Sequence[Ranked]) -> Ranked:
    """The calibrator against which the others are tested: ``ts``, else ``none``, else the best."""
    return next(entry for entry in ranking if not entry.verdict)


def choice(ranking: Sequence[Ranked]) -> Ranked:
    """The calibrator to apply: the best one significantly better than the reference, else the
    reference. On few rows, the best of many noisy scores is worse than ``ts``.
    """
    better = (entry for entry in ranking if entry.verdict == BETTER and entry.converged)
    return next(better, reference(ranking))


def usable(
    n_classes: int, features: Any = None, head: Any = None
) -> tuple[list[str], dict[str, str]]:
    """Return the ids of the calibrators with all inputs given and a fit of less than minutes, in
    alphabetical order, ``none`` first; and the ids of the others with the reason.
    """
    given = {"logits": True, "features": features is not None, "head": head is not None}
    given["training features"] = False
    ids, left_out = ["none"], {}
    for id, component in registry.descriptions("calibrator").items():
        missing = [name for name in component.info["needs"] if not given[name]]
        slow_from = component.info["slow_from"]
        if missing:
            left_out[id] = f"needs {' and '.join(missing)}"
        elif slow_from is not None and n_classes >= slow_from:
            left_out[id] = f"takes minutes a fit of {n_classes} classes; name it to rank it"
        elif id != "none":
            ids.append(id)
    return ids, left_out


def rank_calibrators(
    logits: Any,
    labels: Any,
    features: Any = None,
    head: Head | None = None,
    *,
    candidates: Sequence[str],
    kind: str = "logits",
    rank_by: str = "nll",
    folds: int = 5,
    seed: int = 0,
    n_bins: int = 15,
    n_resamples: int = 1000,
) -> tuple[list[Ranked], dict[str, str]]:
    """Rank calibrators by a cross-validated metric, the best first, and test each against a
    reference, from which :func:`choice` follows.

    All calibrators use the same folds and resamples, so that differences are paired. Fits on folds
    use fewer rows than a final fit on all rows, which is a slight disadvantage for calibrators with
    many parameters.

    Parameters
    ----------
    logits : (N, K), or probabilities if ``kind`` is "probabilities", which ``none`` leaves as they
        are. labels : (N,). features : (N, d), head : weight (K, d) and bias (K,), optional.
    candidates : ids.
    rank_by : metric of predictions with labels that has ranks; plugin metrics are allowed.
    folds : at least 2 and at most N. seed : seed of folds, calibrators and resamples.
    n_resamples : number of bootstrap resamples.

    Returns
    -------
    The ranking, and the calibrators that cannot be fitted on these data with the reason.

    Raises
    ------
    DataError : an input is invalid.
    ConfigError : ``folds`` or ``rank_by`` is invalid, or no calibrator can be fitted.
    """
    ranking_metric = find_ranking_metric(rank_by, "rank_by")
    check_computed(rank_by, np.shape(logits))
    logits, labels = np.asarray(logits), np.asarray(labels)
    features = None if features is None else np.asarray(features)
    if not 2 <= folds <= len(logits):
        raise ConfigError(
            f"folds must be at least 2 and at most the {len(logits)} rows, got {folds}."
        )
    fold = np.random.default_rng(seed).permutation(len(logits)) % folds
    tails = tails_of(LEVEL)
    further = plugin_metrics([rank_by])

    def cross_validate(id: str) -> Ranked:
        output, seconds, converged = out_of_fold(id)
        predictions = check_probabilities(output, labels)
        options: dict[str, Any] = {"n_bins": n_bins, "further": further}
        values = evaluate(predictions, labels, **options)
        scores = {name: Estimate(value) for name, value in values.items()}
        resamples = None
        if n_resamples:
            options |= {"n_resamples": n_resamples, "seed": seed}
            resamples = resampled(predictions, labels, **options)
            for metric in (*LABELLED.values(), *further):
                if metric.id in values:
                    bounds = interval(metric, resamples, tails)
                    scores[metric.id] = Estimate(values[metric.id], *bounds)
        changed = _changed(predictions, logits)
        return Ranked(id, scores, seconds, changed, converged, resamples)

    def out_of_fold(id: str) -> tuple[Output, float, bool]:
        """Out-of-fold output (N, K), mean seconds of a fit, and whether all converged."""
        if id == NONE and kind == "probabilities":  # their logarithm would be rounded
            return Output(logits), 0.0, True
        outputs, seconds, converged = [], [], True
        for number in range(folds):
            scored, fitted = fold == number, fold != number
            calibrator = build_calibrator(id, seed=seed)
            calibrator.fit(logits[fitted], labels[fitted], features_of(fitted), head, kind=kind)
            outputs.append(calibrator.predict_output(logits[scored], features_of(scored)))
            seconds.append(calibrator.fit_seconds or 0.0)
            converged &= calibrator.fit_history["converged"]
        place = np.argsort(np.argsort(fold, kind="stable"))
        return Output.joined(outputs)[place], float(np.mean(seconds)), converged

    def features_of(rows: np.ndarray) -> np.ndarray | None:
        return None if features is None else features[rows]

    ids = list(dict.fromkeys(candidates))
    results: list[Ranked] = []
    refused: dict[str, str] = {}
    with Progress("rank", len(ids), "calibrator") as progress:
        for id in ids:
            try:
                results.append(cross_validate(id))
            except (ConfigError, DataError) as error:
                refused[id] = str(error)
            progress.advance()
    if not results:
        reason = next(iter(refused.values()), "none named")
        raise ConfigError(f"No calibrator can be fitted on these data: {reason}")
    return _ranking(results, ranking_metric, len(labels)), refused


def _changed(predictions: Predictions, logits: Any) -> float:
    """Share of rows whose first arg max, as of the accuracy, differs from the logits'."""
    return float((predictions.probs.argmax(axis=1) != logits.argmax(axis=1)).mean())


def _ranking(results: Sequence[Ranked], metric: Metric, n_rows: int) -> list[Ranked]:
    """Sort calibrators by a metric, the best first, undefined values last; and compare each with
    the reference.
    """
    sign = 1 if metric.lower_is_better else -1

    def position(result: Ranked) -> tuple[bool, float]:
        value = result.scores[metric.id].value
        return bool(np.isnan(value)), sign * value

    in_order = sorted(results, key=position)
    ids = [result.id for result in in_order]
    against = in_order[ids.index(next((id for id in SIMPLEST if id in ids), ids[0]))]
    judged = _judged(in_order, against.id, metric, n_rows)
    untold = {"ci_low": np.nan, "ci_high": np.nan, "verdict": NO_VERDICT, "detectable": np.nan}
    ranking = []
    for result in in_order:
        value = result.scores[metric.id].value - against.scores[metric.id].value
        found = {**untold, **judged.get(result.id, {})}
        tested = {
            "difference": Estimate(value, found["ci_low"], found["ci_high"]),
            "verdict": found["verdict"],
            "detectable": found["detectable"],
        }
        ranking.append(result if result is against else replace(result, **tested))
    return ranking


def _judged(
    results: Sequence[Ranked], against: str, metric: Metric, n_rows: int
) -> dict[str, dict[str, Any]]:
    """Calibrator -> test against the reference. Whether the reference beats no calibration is a
    separate question, so ``none`` is in no family.
    """
    models = {result.id: result.resamples for result in results if result.resamples}
    bare = {id: models[id] for id in (NONE, against) if id in models}
    others = {id: model for id, model in models.items() if id not in bare or id == against}
    judged: dict[str, dict[str, Any]] = {}
    for family in (each for each in (bare, others) if len(each) > 1):
        rows = against_one(family, against, metric.id, n_rows, LEVEL)
        judged |= rows.set_index("method").to_dict("index")
    return judged
