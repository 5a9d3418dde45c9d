"""Means over seeds and paired differences, for summaries, tests against a baseline and comparisons."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special

from calgrid.components.metrics import find_metric, metric_names
from calgrid.errors import ConfigError
from calgrid.storage.schema import INTERVAL, NUMBER_KEY

#: replaces a missing upper bound
NO_BOUND = 1e9
#: distances of the interval ends over test samples below and above the values of both sides of a
#: difference
REACH = ("below", "above", "below_against", "above_against")
#: relative variation of differences below which it is only rounding
ROUNDING = 1e-12


def check_level(level: float) -> None:
    """Raise ConfigError unless a nominal coverage is in (0, 1)."""
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")


def average_fit_seeds(
    metrics: pd.DataFrame, keys: Sequence[str] = (*NUMBER_KEY, "seed")
) -> pd.DataFrame:
    """Average calibrator seeds, which are no independent runs: one row per value and run seed,
    sorted by ``keys``.
    """
    return metrics.groupby(list(keys), as_index=False).agg(
        **{column: (column, "mean") for column in ("value", *INTERVAL)},
        std_fit=("value", "std"),
        n_fits=("value", "count"),
    )


def student_reach(std: ArrayLike, n: ArrayLike, level: float) -> pd.Series:
    """Half-width of the Student t interval of a mean of ``n`` values with deviation ``std``; NaN
    for one value.
    """
    return special.stdtrit(np.maximum(n, 2) - 1, (1 + level) / 2) * std / np.sqrt(n)


def seed_interval(summary: pd.DataFrame, level: float) -> pd.DataFrame:
    """Set ``ci_low`` and ``ci_high`` to an interval of ``mean`` if there are several seeds.

    The interval respects the bounds of ``metric``: it is the Student t interval of the logit of the
    mean, (mean - low) / (high - mean), or of its logarithm without an upper bound, by the delta
    method. It is not transformed for bias-corrected metrics (then clipped), whose mean may be
    outside the bounds, for metrics without a lower bound and for other quantities.

    ``benchmarks/coverage.md`` has the coverage of alternatives: untransformed or arcsine intervals
    are worse for skewed values, logits of single values far worse with many seeds. Source of the
    transform: Agresti, Categorical Data Analysis, on logit intervals of a proportion.
    """
    several = summary["n_seeds"] > 1
    low, high = _bounded(summary, student_reach(summary["std"], summary["n_seeds"], level))
    return summary.assign(
        ci_low=summary["ci_low"].mask(several, low), ci_high=summary["ci_high"].mask(several, high)
    )


def _bounded(summary: pd.DataFrame, reach: pd.Series) -> tuple[pd.Series, pd.Series]:
    """Both ends of the interval of each mean, from the half-width of the unbounded interval."""
    names = metric_names()
    known = {
        name: find_metric(name) if name in names else None for name in summary["metric"].unique()
    }
    least, most = (
        summary["metric"]
        .map({name: each.bounds[end] if each else far for name, each in known.items()})
        .astype(float)
        for end, far in ((0, -math.inf), (1, math.inf))
    )
    turned = summary["metric"].map(
        {name: each is not None and each.is_bounded for name, each in known.items()}
    )
    mean = summary["mean"]
    room, head = (mean - least).where(turned.astype(bool)), most.clip(upper=NO_BOUND) - mean
    factor = np.exp(reach * (1 / room + 1 / head)).where((reach > 0) & (room > 0) & (head > 0))
    low, high = ((room + head) * room / (room + head * by) + least for by in (factor, 1 / factor))
    bends = factor.notna()
    return low.where(bends, (mean - reach).clip(least, most)), high.where(
        bends, (mean + reach).clip(least, most)
    )


def paired_tests(pairs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean difference, its standard deviation over seeds, and the paired t-test.

    Returns one row for each combination of ``keys``, in order of appearance, with n_seeds;
    difference, the mean of ``value - value_against``; std (ddof 1, NaN for one seed); p_value,
    two-sided, of a zero mean difference: 1 if all differences are zero, NaN with fewer than two
    seeds or if all are equal but not zero.

    Parameters
    ----------
    pairs : one row a seed with the columns of ``keys``, ``value`` and ``value_against``; NaN is a
        missing number. Perhaps ``REACH``, means of which are kept.
    """
    pairs = pairs.assign(
        difference=pairs["value"] - pairs["value_against"],
        size=pairs[["value", "value_against"]].abs().max(axis=1),
    )
    tests = pairs.groupby(list(keys), as_index=False, sort=False).agg(
        n_seeds=("difference", "count"),
        std=("difference", "std"),
        size=("size", "max"),
        difference=("difference", "mean"),
        **{name: (name, "mean") for name in REACH if name in pairs},
    )
    p_value = _paired_t_test(tests["difference"], tests["std"], tests["n_seeds"], tests["size"])
    return tests.assign(p_value=p_value).drop(columns="size")


def reaches(runs: pd.DataFrame) -> pd.DataFrame:
    """Values with the distances of their interval ends, NaN without interval; the first half of
    ``REACH``.
    """
    return runs.assign(below=runs["value"] - runs["ci_low"], above=runs["ci_high"] - runs["value"])


def beyond_bias(tests: pd.DataFrame, metric: pd.Series) -> pd.Series:
    """Whether a difference of calibration errors can exceed the bias on a finite test set; True for
    other metrics.

    The (remaining) bias of an error depends on the model (it is larger for less confident ones) and
    is equal for all seeds, so a test over seeds may be significant for two calibrated models. A
    difference counts if it exceeds the root of the summed squares of the distances to the interval
    ends over test samples (Zou and Donner, Statistics in Medicine 2008), which include the bias.
    Without intervals it never counts.
    """
    known = metric_names()
    is_error = {name: name in known and find_metric(name).is_error for name in metric.unique()}
    error = metric.map(is_error).astype(bool)
    upwards = np.hypot(tests["below"], tests["above_against"])
    downwards = np.hypot(tests["above"], tests["below_against"])
    return ~error | (tests["difference"] > upwards) | (tests["difference"] < -downwards)


def _paired_t_test(mean: pd.Series, std: pd.Series, n: pd.Series, size: pd.Series) -> pd.Series:
    """Two-sided p-value of a zero mean difference; ``size`` is the largest value in a difference."""
    varies = (n > 1) & (std > ROUNDING * size)
    t = mean / (std / np.sqrt(n)).where(varies)
    p_value = pd.Series(2 * special.stdtr(n.clip(lower=2) - 1, -t.abs()), index=mean.index)
    same = (n > 1) & ~varies & (mean.abs() <= ROUNDING * size)
    return p_value.mask(same, 1.0)
