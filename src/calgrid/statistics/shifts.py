"""Means over the corruptions of a shifted data set."""

import numpy as np
import pandas as pd

from calgrid.statistics._frames import INTERVAL, KEYS, SEEDS, check_metrics

#: value of the column ``shift`` in rows that are means over corruptions
MEAN_SHIFT = "mean"


def mean_over_shifts(metrics: pd.DataFrame) -> pd.DataFrame:
    """Mean over the corruptions at each severity, of each metric of each run and calibrator.

    Each corruption is scored on its own and then averaged: pooling the samples of several corruptions before they are
    binned gives another, smaller error. Only rows of the split ``shift`` with a severity of at least 1 enter.

    Parameters
    ----------
    metrics : tidy metrics frame, see :func:`calgrid.statistics.summarise`.

    Returns
    -------
    Rows as in ``metrics`` with shift ``mean``, no interval, the total of ``n_samples``, and the columns ``n_shifts``
    and ``shifts`` (names joined by a comma), so that means over different corruptions are not taken for the same.

    Raises
    ------
    DataError : as in :func:`calgrid.statistics.summarise`.
    """
    frame = check_metrics(metrics)
    corrupted = frame[(frame["split"] == "shift") & (frame["severity"] > 0) & (frame["shift"] != MEAN_SHIFT)]
    keys = [key for key in (*KEYS, *SEEDS) if key != "shift"]
    totals = {"n_samples": ("n_samples", "sum")} if "n_samples" in frame else {}
    origin = {"fingerprint": ("fingerprint", "first")} if "fingerprint" in frame else {}
    corrupted = corrupted.dropna(subset="value")
    # a set of names is a sum of powers of two: joining words in each of many groups takes far longer
    codes, names = pd.factorize(corrupted["shift"], sort=True)
    powers = np.array([1 << place for place in range(len(names))], dtype=np.int64 if len(names) < 63 else object)
    means = (
        corrupted.assign(_shifts=powers[codes])
        .groupby(keys, as_index=False)
        .agg(
            value=("value", "mean"),
            n_shifts=("shift", "size"),
            shifts=("_shifts", "sum"),
            **totals,
            **origin,
        )
    )
    words = {
        found: ",".join(name for name, power in zip(names, powers, strict=True) if found & power)
        for found in means["shifts"].unique()
    }
    means["shifts"] = means["shifts"].map(words)
    means = means.assign(shift=MEAN_SHIFT, **dict.fromkeys(INTERVAL, float("nan")))
    return means[[*(column for column in metrics.columns if column in means), "n_shifts", "shifts"]]
