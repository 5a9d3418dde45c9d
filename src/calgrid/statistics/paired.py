"""Means over seeds, and paired differences with their variances over seeds and test samples."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special

from calgrid.components.metrics import find_metric, metric_names
from calgrid.metrics.intervals import sampling_variance
from calgrid.statistics.checks import WORDS
from calgrid.statistics.verdicts import ROUNDING, of_metric

Floats = NDArray[np.float64]
#: replaces a missing upper bound
NO_BOUND = 1e9


def student_reach(std: ArrayLike, n: ArrayLike, level: float) -> pd.Series:
    """Half-width of the Student t interval of a mean of ``n`` values with deviation ``std``; NaN
    for one value.
    """
    return special.stdtrit(np.maximum(n, 2) - 1, (1 + level) / 2) * std / np.sqrt(n)


def wilson_interval(share: ArrayLike, count: ArrayLike, level: float) -> tuple[Floats, Floats]:
    """Ends of Wilson's score interval of a share among ``count``, which has a positive length at 0
    and 1, too.
    """
    share, count = np.asarray(share, np.float64), np.asarray(count, np.float64)
    normal = special.ndtri((1 + level) / 2)
    centre = share + normal**2 / (2 * count)
    reach = normal * np.sqrt(share * (1 - share) / count + (normal / (2 * count)) ** 2)
    factor = 1 + normal**2 / count
    return (centre - reach) / factor, (centre + reach) / factor


def seed_interval(summary: pd.DataFrame, level: float) -> pd.DataFrame:
    """Set ``ci_low`` and ``ci_high`` to an interval of ``mean`` if there are several seeds.

    The interval respects the bounds of ``metric``: it is the Student t interval of the logit of the
    mean, (mean - low) / (high - mean), or of its logarithm without an upper bound, by the delta
    method. It is not transformed for metrics without a lower bound, for other quantities and for
    bias-corrected metrics, whose mean may be outside the bounds: then it is clipped, but contains
    the mean.

    ``benchmarks/coverage.md`` has the coverage of alternatives: untransformed or arcsine intervals
    are worse for skewed values, logits of single values far worse with many seeds. Source of the
    transform: Agresti, Categorical Data Analysis, on logit intervals of a proportion.
    """
    reach = student_reach(summary["std"], summary["n_seeds"], level)
    low, high = bounded_ends(summary["metric"], summary["mean"], reach)
    several = summary["n_seeds"] > 1
    return summary.assign(
        ci_low=summary["ci_low"].mask(several, low), ci_high=summary["ci_high"].mask(several, high)
    )


def bounded_ends(
    metrics: pd.Series, mean: pd.Series, reach: pd.Series
) -> tuple[pd.Series, pd.Series]:
    """Ends of an interval of ``mean`` with the untransformed half-width ``reach``, within the
    bounds of ``metrics`` as in :func:`seed_interval`; NaN without a half-width.
    """
    lows, highs = {}, {}
    for name in set(metrics) & set(metric_names()):
        lows[name], highs[name] = find_metric(name).bounds
    names = metrics.astype(object)
    least = names.map(lows).astype(float).fillna(-math.inf)
    most = names.map(highs).astype(float).fillna(math.inf)
    transformed = of_metric(metrics, "is_bounded").eq(True)
    room, head = (mean - least).where(transformed), most.clip(upper=NO_BOUND) - mean
    # the half-width of the logit of the mean is its derivative, 1 / room + 1 / head, times reach
    factor = np.exp(reach * (1 / room + 1 / head)).where((reach > 0) & (room > 0) & (head > 0))
    low = (room + head) * room / (room + head * factor) + least
    high = (room + head) * room / (room + head * (1 / factor)) + least
    bends = factor.notna()
    low = low.where(bends, (mean - reach).clip(least, most).clip(upper=mean))
    high = high.where(bends, (mean + reach).clip(least, most).clip(lower=mean))
    return low, high


class Draws(NamedTuple):
    """Resamples of the test samples of some runs, common to all of them.

    Attributes
    ----------
    row : row of each run in the arrays, -1 without resamples, (n,).
    linear, pairs : parts of the change of a value under resampling (M, R), see
        :func:`calgrid.metrics.intervals.sampling_variance`.
    """

    row: NDArray[np.intp]
    linear: Floats
    pairs: Floats


def run_draws(runs: pd.DataFrame, resamples: pd.DataFrame | None, keys: Sequence[str]) -> Draws:
    """Resamples of each row of ``runs``, means over the rows with the same ``keys`` (calibrator
    seeds); ``resamples`` has the columns ``keys``, ``draws`` and ``pairs``.
    """
    row = np.full(len(runs), -1)
    found = None
    if resamples is not None:
        places = runs[list(keys)].astype(dict.fromkeys({*keys} & {*WORDS}, "str"))
        found = resamples.merge(places.assign(_run=np.arange(len(runs))), on=list(keys))
    if found is None or found.empty:
        return Draws(row, np.empty((0, 1)), np.empty((0, 1)))
    linear = np.stack(list(found["draws"]))
    pairs = np.zeros_like(linear)
    for place, each in enumerate(found["pairs"]):
        if len(each):
            pairs[place] = each
    ids, group = np.unique(found["_run"], return_inverse=True)
    row[ids] = np.arange(len(ids))
    return Draws(row, _group_means(linear, group), _group_means(pairs, group))


def _group_means(values: Floats, group: NDArray[np.intp]) -> Floats:
    """Means (G, R) of the rows (n, R) of each group."""
    count = np.bincount(group)
    total = np.zeros((len(count), values.shape[1]))
    np.add.at(total, group, values)
    return total / count[:, None]


def paired_tests(
    pairs: pd.DataFrame, keys: Sequence[str], runs: pd.DataFrame, draws: Draws
) -> pd.DataFrame:
    """Mean difference over common seeds with its variances: the inputs of :func:`judge`.

    Returns one row for each combination of ``keys``, in order of appearance, with n_seeds;
    difference, the mean over pairs of runs; std_seed (ddof 1, NaN for one seed); std_test, that of
    the mean over test samples, NaN if a run has no resamples; n_test, the number of test samples.

    Parameters
    ----------
    pairs : one row a seed with the columns of ``keys``, ``run`` and ``run_against``, the numbers of
        both runs.
    runs : ``value`` (NaN is a missing number) and ``n_samples`` of each run. draws : of the same
        runs.
    """
    run, against = pairs["run"].to_numpy(), pairs["run_against"].to_numpy()
    value = runs["value"].to_numpy(float)
    pairs = pairs[list(keys)].assign(
        difference=value[run] - value[against], n_samples=runs["n_samples"].to_numpy()[run]
    )
    grouped = pairs.groupby(list(keys), sort=False)
    tests = grouped.agg(
        n_seeds=("difference", "count"),
        std_seed=("difference", "std"),
        difference=("difference", "mean"),
        n_test=("n_samples", "min"),
    ).reset_index()
    # rounding only: equal differences of all seeds
    rounded = tests["std_seed"] <= ROUNDING * pd.Series(value[run]).abs().max()
    tests["std_seed"] = tests["std_seed"].mask(rounded, 0.0)
    both = pairs["difference"].notna().to_numpy()
    group = grouped.ngroup().to_numpy()[both]
    mine, other = draws.row[run[both]], draws.row[against[both]]
    lacking = (mine < 0) | (other < 0)
    wanted = (np.bincount(group, lacking, len(tests)) == 0)[group]
    std_test = np.full(len(tests), np.nan)
    if wanted.any():
        ids, place = np.unique(group[wanted], return_inverse=True)
        mine, other = mine[wanted], other[wanted]
        linear = _group_means(draws.linear[mine] - draws.linear[other], place)
        products = _group_means(draws.pairs[mine] - draws.pairs[other], place)
        std_test[ids] = np.sqrt(sampling_variance(linear, products))
    return tests.assign(std_test=std_test)
