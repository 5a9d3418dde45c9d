"""Conformal prediction sets: scores, thresholds and metrics of the sets.

A set holds every class whose score is at most a threshold, a quantile of the scores of the labels
of other samples. Where these samples and the test samples are exchangeable, a set contains the
label with a probability of at least 1 - alpha (marginally, over both); under shift nothing is
guaranteed.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array

from calgrid.errors import DataError
from calgrid.metrics._inputs import Floats, Mask, Places, check_probabilities
from calgrid.metrics.intervals import resample_weights, tails_of
from calgrid.metrics.moments import row_blocks

Labels = NDArray[np.int64]
#: allowed shares of sets without the label
ALPHAS = (0.1, 0.05)
#: sizes at which a stratum of ``sscv`` begins: 0-1, 2-3, 4-6, 7-10, 11-100, 101-1000, more
STRATA = (2, 4, 7, 11, 101, 1001)
#: strata with fewer samples are ignored
FEWEST = 20
#: share of the rows that choose penalties of scores; the others set thresholds
TUNING_SHARE = 0.3
#: entries of a block of rows, and of resamples times rows
BLOCK = 1 << 20


class Ranked(NamedTuple):
    """Probabilities ``(N, K)``, the rank of each from 1, and the sum of those with a lower rank."""

    probs: Floats
    rank: Places
    before: Floats

    @property
    def top(self) -> Floats:
        """Largest probability of each row, ``(N, 1)``."""
        return self.probs.max(axis=1, keepdims=True)

    @classmethod
    def of(cls, probs: Floats) -> "Ranked":
        """Rank probabilities; equal ones in the order of classes."""
        order = np.argsort(-probs, axis=1, kind="stable")
        ordered = np.take_along_axis(probs, order, axis=1)
        rank, before = np.empty_like(order), np.empty_like(probs)
        places = np.broadcast_to(np.arange(1, probs.shape[1] + 1), probs.shape)
        np.put_along_axis(rank, order, places, axis=1)
        np.put_along_axis(before, order, np.cumsum(ordered, axis=1) - ordered, axis=1)
        return cls(probs, rank, before)


@dataclass(frozen=True)
class SetScore:
    """A score of prediction sets and its facts.

    Attributes
    ----------
    id : name in a study.
    formula : ``formula(ranked, u, penalty, free)`` with u ``(N, 1)``: scores ``(N, K)``.
    summary, source : formula and paper; p are sorted probabilities, o the rank of the class.
    penalties : values among which the mean size on separate rows chooses; none without a penalty.
    frees : whether ranks up to a quantile of the labels' ranks are free of the penalty.
    """

    id: str
    formula: Callable[[Ranked, Floats, float, int], Floats]
    summary: str
    source: str
    penalties: Sequence[float] = ()
    frees: bool = False


#: identifier -> score
SCORES: Mapping[str, SetScore] = MappingProxyType(
    {
        score.id: score
        for score in (
            SetScore(
                "thr",
                lambda ranked, u, penalty, free: 1.0 - ranked.probs,
                "1 - p",
                "Sadinle, Lei, Wasserman, JASA 2019",
            ),
            SetScore(
                "aps",
                lambda ranked, u, penalty, free: ranked.before + u * ranked.probs,
                "sum of larger p, plus u p with u uniform in [0, 1]",
                "Romano, Sesia, Candès, NeurIPS 2020",
            ),
            SetScore(
                "raps",
                lambda ranked, u, penalty, free: (
                    ranked.before + u * ranked.probs + penalty * np.maximum(ranked.rank - free, 0)
                ),
                "aps plus a penalty for each rank beyond a quantile of the labels' ranks",
                "Angelopoulos et al., ICLR 2021",
                (0.001, 0.01, 0.1, 0.2, 0.5),
                frees=True,
            ),
            SetScore(
                "saps",
                lambda ranked, u, penalty, free: np.where(
                    ranked.rank == 1, u * ranked.top, ranked.top + (ranked.rank - 2 + u) * penalty
                ),
                "u p of the largest p; beyond, the largest p plus (o - 2 + u) penalty",
                "Huang et al., ICML 2024",
                (0.02, 0.05, 0.1, 0.2, 0.5),
            ),
        )
    }
)
#: metric of sets -> summary
SET_METRICS: Mapping[str, str] = MappingProxyType(
    {
        "coverage": "share of sets that contain the label",
        "set_size": "mean number of classes in a set",
        "set_empty": "share of empty sets",
        "sscv": "largest distance of the coverage of sets of similar size from 1 - alpha",
        "covgap": "mean distance of the coverage of a class from 1 - alpha",
    }
)


@dataclass(frozen=True)
class SetRule:
    """A threshold: a class is in the set if its score is at most this.

    Attributes
    ----------
    score, alpha : identifier of the score, and allowed share of sets without the label.
    threshold : inf if there are too few rows for the level.
    n_threshold : rows whose quantile it is.
    penalty, free : parameters of the score.
    """

    score: str
    alpha: float
    threshold: float
    n_threshold: int
    penalty: float = 0.0
    free: int = 0

    def scores(self, ranked: Ranked, u: Floats) -> Floats:
        """Return the scores of all classes ``(N, K)`` with random numbers u ``(N,)``."""
        return SCORES[self.score].formula(ranked, u[:, None], self.penalty, self.free)


def conformal_quantile(values: Floats, alpha: float) -> float:
    """Return the k-th smallest of n values with ``k = ceil((n + 1)(1 - alpha))``; inf if k > n."""
    place = math.ceil((len(values) + 1) * (1.0 - alpha) - 1e-9)
    return math.inf if place > len(values) else float(np.partition(values, place - 1)[place - 1])


def check_rows_of_sets(n_samples: int, alphas: Sequence[float] = ALPHAS) -> int:
    """Return how many of N rows, the first ones, choose penalties.

    Raises
    ------
    DataError : the others are too few for a threshold, which takes ``1 / alpha - 1``.
    """
    n_tuning = round(TUNING_SHARE * n_samples)
    rest, least = n_samples - n_tuning, 1.0 / min(alphas) - 1.0
    if rest + 1e-9 < least:
        raise DataError(
            f"Conformal sets at level {min(alphas):g} need at least {least:.0f} validation rows "
            f"for their thresholds, got {rest} ({1 - TUNING_SHARE:.0%} of a half); use more "
            "validation rows."
        )
    return n_tuning


def fit_sets(
    probs: ArrayLike,
    labels: ArrayLike,
    u: Floats,
    names: Sequence[str],
    alphas: Sequence[float] = ALPHAS,
) -> list[SetRule]:
    """Fit a threshold for each score and level.

    Parameters
    ----------
    probs, labels : ``(N, K)``, ``(N,)``; the first 30 % of the rows choose penalties by mean size,
        the others set all thresholds. u : uniform random numbers ``(N,)``.
    names : identifiers of :data:`SCORES`. alphas : levels.

    Raises
    ------
    DataError : invalid inputs, or too few rows (:func:`check_rows_of_sets`).
    """
    checked = check_probabilities(probs, labels)
    values, truth = checked.probs, checked.labels
    n_tuning = check_rows_of_sets(len(values), alphas)
    tuning, others = Ranked.of(values[:n_tuning]), Ranked.of(values[n_tuning:])
    rules = []
    for name in names:
        for alpha in alphas:
            rule = _tuned(name, alpha, tuning, truth[:n_tuning], u[:n_tuning])
            threshold = _threshold(rule, others, truth[n_tuning:], u[n_tuning:])
            rules.append(replace(rule, threshold=threshold, n_threshold=len(values) - n_tuning))
    return rules


def _threshold(rule: SetRule, ranked: Ranked, labels: Labels, u: Floats) -> float:
    scores = rule.scores(ranked, u)[np.arange(len(u)), labels]
    return conformal_quantile(scores, rule.alpha)


def _tuned(name: str, alpha: float, ranked: Ranked, labels: Labels, u: Floats) -> SetRule:
    """Return the rule with the penalty of the smallest sets; the first of equal ones."""
    score, free = SCORES[name], 0
    if score.frees and len(u):
        ranks = ranked.rank[np.arange(len(u)), labels].astype(np.float64)
        free = int(min(conformal_quantile(ranks, alpha), ranked.probs.shape[1]))
    plain = best = SetRule(name, alpha, math.nan, 0)
    smallest = math.inf
    for penalty in score.penalties:
        rule = replace(plain, penalty=penalty, free=free)
        threshold = _threshold(rule, ranked, labels, u)
        size = float((rule.scores(ranked, u) <= threshold).sum(axis=1).mean()) if len(u) else 0.0
        if size < smallest:
            best, smallest = rule, size
    return best


def sets_of(
    rules: Sequence[SetRule], probs: ArrayLike, labels: ArrayLike, u: Floats
) -> tuple[NDArray[np.int64], Mask]:
    """Return sizes of the sets and whether they contain the label, ``(R, N)`` each, of R rules."""
    checked = check_probabilities(probs, labels)
    n_samples, n_classes = checked.probs.shape
    sizes = np.empty((len(rules), n_samples), dtype=np.int64)
    covered = np.empty((len(rules), n_samples), dtype=bool)
    for block in row_blocks(n_samples, n_classes, BLOCK):
        ranked, truth = Ranked.of(checked.probs[block]), checked.labels[block]
        for number, rule in enumerate(rules):
            inside = rule.scores(ranked, u[block]) <= rule.threshold
            sizes[number, block] = inside.sum(axis=1)
            covered[number, block] = inside[np.arange(len(truth)), truth]
    return sizes, covered


def evaluate_sets(
    sizes: ArrayLike,
    covered: ArrayLike,
    labels: ArrayLike,
    alpha: float,
    *,
    weights: Floats | None = None,
    fewest: int = FEWEST,
) -> dict[str, Floats]:
    """Return each metric of :data:`SET_METRICS` for one or several resamples, ``(B,)``.

    Parameters
    ----------
    sizes, covered, labels : sizes of sets, whether they contain the label, and labels, ``(N,)``.
    alpha : level.
    weights : how often each resample has each row, ``(N, B)``; None is each row once.
    fewest : strata of ``sscv`` with fewer rows are ignored; NaN if all are.
    """
    size, hit = np.asarray(sizes, dtype=np.float64), np.asarray(covered, dtype=np.float64)
    weights = np.ones((len(size), 1)) if weights is None else weights
    total = weights.sum(axis=0)
    strata = _gaps(np.searchsorted(STRATA, size, side="right"), hit, weights, alpha, fewest)
    classes = _gaps(np.asarray(labels), hit, weights, alpha, 1)
    return {
        "coverage": hit @ weights / total,
        "set_size": size @ weights / total,
        "set_empty": (size == 0) @ weights / total,
        "sscv": np.fmax.reduce(strata, axis=0),
        "covgap": np.nansum(classes, axis=0) / (~np.isnan(classes)).sum(axis=0),
    }


def _gaps(
    groups: NDArray[np.integer], hit: Floats, weights: Floats, alpha: float, fewest: int
) -> Floats:
    """Return |coverage - (1 - alpha)| of each group in each resample, ``(G, B)``, NaN for groups
    with fewer rows than ``fewest``.
    """
    _, group = np.unique(groups, return_inverse=True)
    places = (group, np.arange(len(group)))
    counts = csr_array((np.ones(len(group)), places)) @ weights
    hits = csr_array((hit, places)) @ weights
    enough = counts >= fewest
    rates = np.divide(hits, counts, out=np.full_like(hits, np.nan), where=enough)
    return np.abs(rates - (1.0 - alpha))


def bootstrap_sets(
    sizes: NDArray[np.int64],
    covered: Mask,
    labels: ArrayLike,
    alphas: Sequence[float],
    *,
    n_resamples: int,
    level: float,
    seed: int,
) -> list[dict[str, tuple[float, float]]]:
    """Return percentile intervals of each metric for each of R rules, over test rows.

    Parameters
    ----------
    sizes, covered : ``(R, N)``. labels : ``(N,)``. alphas : level of each rule.
    """
    draws = []
    for block in resample_weights(sizes.shape[1], n_resamples, seed):
        weights = np.ascontiguousarray(block.T)
        draws.append(
            [
                evaluate_sets(size, hit, labels, alpha, weights=weights)
                for size, hit, alpha in zip(sizes, covered, alphas, strict=True)
            ]
        )
    intervals = []
    for of_rule in zip(*draws, strict=True):
        found = {}
        for name in SET_METRICS:
            drawn = np.concatenate([values[name] for values in of_rule])
            low, high = np.quantile(drawn, tails_of(level)).tolist()
            found[name] = low, high
        intervals.append(found)
    return intervals
