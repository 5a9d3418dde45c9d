"""Means over the corruptions of a shifted data set."""

import numpy as np
import pandas as pd

from calgrid.statistics._checks import check_columns, refuse_twice
from calgrid.statistics._number_keys import coded, combined
from calgrid.storage.schema import INTERVAL, NUMBER_KEY, SEEDS

#: value of the column ``shift`` in means over corruptions
MEAN_SHIFT = "mean"


def mean_over_shifts(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean over the corruptions at each severity, for each metric, run and calibrator.

    Each corruption is scored separately and then averaged: pooling the samples of several corruptions would give
    another, smaller error. Only rows of the split ``shift`` with a severity of at least 1 are used.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.

    Returns
    -------
    Rows as in ``metrics`` with shift ``mean``, no interval, the total of ``n_samples``, and the columns ``n_shifts``
    and ``shifts`` (names joined by a comma), so that means over different corruptions can be distinguished.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    """
    check_columns(metrics, (*NUMBER_KEY, *SEEDS, "value", *INTERVAL), "metrics")
    corrupted = metrics[(metrics["split"] == "shift") & (metrics["severity"] > 0) & (metrics["shift"] != MEAN_SHIFT)]
    corrupted = corrupted.dropna(subset="value")
    codes = {key: coded(corrupted[key]) for key in NUMBER_KEY}
    codes |= {name: pd.factorize(corrupted[name].fillna(0), sort=True) for name in SEEDS}
    sizes = {name: (places, len(values)) for name, (places, values) in codes.items()}
    refuse_twice(corrupted, pd.Index(combined(list(sizes.values()))).duplicated())
    shift, names = codes["shift"]
    group, _ = pd.factorize(combined([each for name, each in sizes.items() if name != "shift"]), sort=True)
    # a set of names is a sum of powers of two: faster than joining strings in many groups
    powers = np.array([1 << place for place in range(len(names))], dtype=np.int64 if len(names) < 63 else object)
    parts = corrupted[["value", *(name for name in ("n_samples", "fingerprint") if name in corrupted)]]
    grouped = parts.assign(shifts=powers[shift]).groupby(group)
    first = corrupted.iloc[np.unique(group, return_index=True)[1]]
    sums = grouped["shifts"].sum()
    words = {
        found: ",".join(name for name, power in zip(names, powers, strict=True) if found & power)
        for found in sums.unique()
    }
    means = first.reset_index(drop=True).assign(
        value=grouped["value"].mean(),
        shift=MEAN_SHIFT,
        n_shifts=grouped.size(),
        shifts=sums.map(words),
        **dict.fromkeys(INTERVAL, np.nan),
    )
    return means.assign(n_samples=grouped["n_samples"].sum()) if "n_samples" in means else means


def mean_over_severities(means: pd.DataFrame) -> pd.DataFrame:
    """Means of the rows of :func:`mean_over_shifts` over severities, as rows of severity -1."""
    keys = [*(key for key in NUMBER_KEY if key != "severity"), *SEEDS]
    found = {"value": ("value", "mean"), "n_shifts": ("n_shifts", "max")}
    return means.groupby(keys, as_index=False, observed=True).agg(**found).assign(severity=-1)
