"""A small tidy metrics frame for the tests of statistics."""

import numpy as np
import pandas as pd

DEFAULTS = {
    "protocol": "short",
    "dataset": "cifar10",
    "backbone": "resnet50",
    "method": "ce",
    "seed": 1,
    "checkpoint": "best",
    "calibrator": "none",
    "fit_on": "val",
    "fit_seed": 0,
    "split": "test",
    "shift": "",
    "severity": 0,
    "metric": "ece",
    "value": 0.0,
    "ci_low": float("nan"),
    "ci_high": float("nan"),
    "n_samples": 100,
    "fingerprint": "f",
}


def frame(*rows):
    """Metrics frame of rows that differ from ``DEFAULTS`` in the given columns."""
    return pd.DataFrame([{**DEFAULTS, **row} for row in rows], columns=list(DEFAULTS))


def over_seeds(values, **common):
    """Rows of one number at seeds 1, 2, ..."""
    return [{**common, "seed": seed, "value": value} for seed, value in enumerate(values, start=1)]


def one(summary, **where):
    """The single row of a summary at which these columns have these values."""
    found = summary
    for column, value in where.items():
        found = found[found[column] == value]
    assert len(found) == 1, (where, len(found))
    return found.iloc[0]


def resamples(metrics, std=0.0):
    """Resamples of all numbers of a frame, which vary by ``std`` independently of each other."""
    rng = np.random.default_rng(0)
    keys = [name for name in DEFAULTS if name not in ("value", "ci_low", "ci_high")]
    drawn = [std * rng.normal(size=200) for _ in range(len(metrics))]
    return metrics[keys].fillna({"fit_seed": 0}).assign(draws=drawn, pairs=[[]] * len(metrics))
