"""All metrics of one set of predictions."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from calgrid.errors import DataError
from calgrid.metrics._inputs import Probabilities, check_probabilities, check_rows
from calgrid.metrics.table import LABELLED, OOD, SOFT, Metric


def evaluate(
    probs: Probabilities,
    labels: ArrayLike,
    *,
    n_bins: int = 15,
    further: Iterable[Metric] = (),
    costly: bool = True,
) -> dict[str, float]:
    """Value of every labelled metric by identifier, in the order of ``METRICS``; with more than two
    million probabilities without slow ones (``Metric.slow``).

    Parameters
    ----------
    probs : probabilities (N, K). labels : integers (N,). n_bins : number of confidence bins.
    further : additional labelled metrics, at the end. costly : whether to include costly metrics.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`.

    Examples
    --------
    >>> evaluate([[0.9, 0.1], [0.4, 0.6]], [0, 0])["accuracy"]
    0.5
    """
    predictions = check_probabilities(probs, labels)
    metrics = [
        metric
        for metric in (*LABELLED.values(), *further)
        if metric.is_computed(*predictions.probs.shape) and (costly or not metric.costly)
    ]
    return {
        metric.id: metric.function(predictions, predictions.labels, n_bins) for metric in metrics
    }


def evaluate_ood(probs_id: ArrayLike, probs_ood: ArrayLike) -> dict[str, float]:
    """Value of every out-of-distribution metric by identifier.

    Parameters
    ----------
    probs_id, probs_ood : probabilities (N, K) and (M, K) of the same model on the two sets.

    Raises
    ------
    DataError : invalid probabilities, or different numbers of classes.
    """
    scores = ood_scores(probs_id, probs_ood)
    return {name: metric.function(*scores[metric.score]) for name, metric in OOD.items()}


def evaluate_soft(
    probs: ArrayLike, distribution: ArrayLike, *, n_bins: int = 15
) -> dict[str, float]:
    """Value of every soft metric by identifier.

    Parameters
    ----------
    probs : probabilities (N, K). distribution : probabilities or counts of the classes of each
        image (N, K).
    n_bins : number of confidence bins.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece_human`.
    """
    return {name: metric.function(probs, distribution, n_bins) for name, metric in SOFT.items()}


def ood_scores(
    probs_id: ArrayLike, probs_ood: ArrayLike
) -> dict[object, tuple[NDArray[np.float64], ...]]:
    """ID scores (N,) and OOD scores (M,) by scoring function, for all scores that a metric in
    ``OOD`` needs.
    """
    rows_id, rows_ood = check_rows(probs_id, "probs_id"), check_rows(probs_ood, "probs_ood")
    if rows_id.shape[1] != rows_ood.shape[1]:
        raise DataError(
            f"probs_ood must have the {rows_id.shape[1]} classes of probs_id, got "
            f"{rows_ood.shape[1]}; both sets are scored by one model."
        )
    scores = {metric.score for metric in OOD.values() if metric.score is not None}
    return {score: (score(rows_id), score(rows_ood)) for score in scores}
