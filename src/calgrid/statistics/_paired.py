"""Differences paired over seeds: what the tests against a baseline and the comparisons of a study share."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import special

from calgrid.errors import ConfigError
from calgrid.statistics._frames import INTERVAL, KEYS

#: differences that vary by less than this share of the values vary only by rounding
ROUNDING = 1e-12


def check_level(level: float) -> None:
    """Raise ConfigError unless a nominal coverage is in (0, 1)."""
    if not 0 < level < 1:
        raise ConfigError(f"level must be between 0 and 1, got {level}.")


def average_fit_seeds(metrics: pd.DataFrame, keys: Sequence[str] = (*KEYS, "seed")) -> pd.DataFrame:
    """One row for each number of each run seed, sorted by ``keys``: seeds of a calibrator are no independent runs."""
    return metrics.groupby(list(keys), as_index=False).agg(
        **{column: (column, "mean") for column in ("value", *INTERVAL)},
        std_fit=("value", "std"),
        n_fits=("value", "count"),
    )


def student_reach(std: pd.Series, n: pd.Series, level: float) -> pd.Series:
    """Half width of the Student t interval of a mean of ``n`` values with deviation ``std``; NaN for one value."""
    return special.stdtrit(n.clip(lower=2) - 1, (1 + level) / 2) * std / np.sqrt(n)


def seed_interval(summary: pd.DataFrame, level: float) -> pd.DataFrame:
    """Set ``ci_low`` and ``ci_high`` to the Student t interval of ``mean`` where there are several seeds."""
    several = summary["n_seeds"] > 1
    reach = student_reach(summary["std"], summary["n_seeds"], level)
    return summary.assign(
        ci_low=summary["ci_low"].mask(several, summary["mean"] - reach),
        ci_high=summary["ci_high"].mask(several, summary["mean"] + reach),
    )


def paired_tests(pairs: pd.DataFrame, keys: Sequence[str]) -> pd.DataFrame:
    """Mean difference, its deviation over seeds, and the paired t-test.

    Parameters
    ----------
    pairs : one row a seed with the columns of ``keys``, ``value`` and ``value_against``; NaN is a missing number.

    Returns
    -------
    One row for each combination of ``keys``, in order of appearance, with n_seeds; difference, the mean of
    ``value - value_against``; std (ddof 1, NaN for one seed); p_value, two-sided, of a zero mean difference: 1 if all
    differences are zero, NaN with fewer than two seeds or if all are equal but not zero.
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
    )
    p_value = _paired_t_test(tests["difference"], tests["std"], tests["n_seeds"], tests["size"])
    return tests.assign(p_value=p_value).drop(columns="size")


def _paired_t_test(mean: pd.Series, std: pd.Series, n: pd.Series, size: pd.Series) -> pd.Series:
    """Two-sided p-value of a zero mean difference; ``size`` is the largest value that entered a difference."""
    varies = (n > 1) & (std > ROUNDING * size)
    t = mean / (std / np.sqrt(n)).where(varies)
    p_value = pd.Series(2 * special.stdtr(n.clip(lower=2) - 1, -t.abs()), index=mean.index)
    same = (n > 1) & ~varies & (mean.abs() <= ROUNDING * size)
    return p_value.mask(same, 1.0)
