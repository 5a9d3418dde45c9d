"""Means over the corruptions of a shifted data set."""

import numpy as np
import pandas as pd
from scipy import special

from calgrid.metrics.intervals import sampling_variance
from calgrid.statistics.checks import WORDS, check_metrics, groups, keys_without
from calgrid.statistics.paired import bounded_ends, run_draws
from calgrid.storage.schema import INTERVAL, MEAN_SHIFT, NUMBER_KEY, SEEDS


def mean_over_shifts(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean over the corruptions at each severity, for each metric, run and calibrator.

    Each corruption is scored separately and then averaged: pooling the samples of several
    corruptions would give another, smaller error. Only rows of the split ``shift`` with a severity
    of at least 1 are used.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.

    Returns
    -------
    Rows as in ``metrics`` with shift ``mean``, no interval, the smallest of their ``n_samples``,
    and the columns ``n_shifts`` and ``shifts`` (names joined by a comma), so that means over
    different corruptions can be distinguished.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    """
    metrics = metrics.reset_index(drop=True)
    rows = check_metrics(metrics)
    rows = rows[(rows["split"] == "shift") & (rows["severity"] > 0) & (rows["shift"] != MEAN_SHIFT)]
    rows = rows.dropna(subset="value")
    group = groups(rows, [*keys_without("shift"), *SEEDS])
    # a set of names is a sum of powers of two: faster than joining strings in many groups
    shift = rows["shift"].cat.remove_unused_categories().cat
    powers = np.array([1 << place for place in range(len(shift.categories))], dtype=object)
    grouped = rows.assign(shifts=powers[shift.codes]).groupby(group)
    sums = grouped["shifts"].sum()
    words = {}
    for found in sums.unique():
        words[found] = ",".join(shift.categories[[bool(found & power) for power in powers]])
    first = metrics.loc[rows.index].iloc[np.unique(group, return_index=True)[1]]
    return first.reset_index(drop=True).assign(
        value=grouped["value"].mean(),
        n_samples=grouped["n_samples"].min(),
        shift=MEAN_SHIFT,
        n_shifts=grouped.size(),
        shifts=sums.map(words),
        **dict.fromkeys(INTERVAL, np.nan),
    )


def mean_over_severities(means: pd.DataFrame) -> pd.DataFrame:
    """Means of the rows of :func:`mean_over_shifts` over severities, as rows of severity -1."""
    keys = [*WORDS, *SEEDS]
    found = {
        "value": ("value", "mean"),
        "n_samples": ("n_samples", "min"),
        "n_shifts": ("n_shifts", "max"),
    }
    return means.groupby(keys, as_index=False, observed=True).agg(**found).assign(severity=-1)


def mean_intervals(means: pd.DataFrame, resamples: pd.DataFrame, level: float) -> pd.DataFrame:
    """Set ``ci_low`` and ``ci_high`` of means over corruptions to their intervals over test images.

    Images of all corruptions are resampled together. The half-width is t s, with s the standard
    deviation of :func:`calgrid.metrics.intervals.sampling_variance` and t the Student quantile with
    one degree of freedom less than resamples; ends are within the bounds of the metric as in
    :func:`calgrid.statistics.paired.seed_interval`.

    Parameters
    ----------
    means : from :func:`mean_over_shifts` or :func:`mean_over_severities`.
    resamples : ``resamples.parquet`` of the same runs; means without resamples get no interval.
    level : nominal coverage, in (0, 1).
    """
    draws = run_draws(means, resamples, (*NUMBER_KEY, *SEEDS))
    t = special.stdtrit(draws.linear.shape[1] - 1, (1 + level) / 2)
    reach = np.append(t * np.sqrt(sampling_variance(draws.linear, draws.pairs)), np.nan)
    # row -1, without resamples, is the last: NaN
    ends = bounded_ends(means["metric"], means["value"], pd.Series(reach[draws.row], means.index))
    return means.assign(**dict(zip(INTERVAL, ends, strict=True)))
