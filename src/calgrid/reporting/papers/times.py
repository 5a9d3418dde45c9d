"""Seconds of training and of fits as rows of the tidy metrics frame."""

from collections.abc import Collection

import pandas as pd

from calgrid.storage.schema import RUN_KEY

#: metric -> stages of the costs whose seconds it adds up
STAGES = {"train_seconds": ("first_stage", "train"), "runtime_seconds": ("calibrate",)}


def timed_rows(costs: pd.DataFrame, checkpoints: pd.DataFrame, wanted: Collection[str]) -> pd.DataFrame:
    """Rows of the metrics ``train_seconds`` (all stages) and ``runtime_seconds`` (a fit, by seed of the calibrator).

    Both count for all checkpoints of a run alike: training is one for all, and fits are averaged over checkpoints.

    Parameters
    ----------
    costs : table of a study.
    checkpoints : those of each run, one row each.
    wanted : metrics; others than the two are left alone.
    """
    parts = [_seconds(costs, metric).merge(checkpoints, on=list(RUN_KEY)) for metric in STAGES if metric in wanted]
    rows = pd.concat(parts) if parts else pd.DataFrame()
    empty = {"fit_on": "val", "split": "test", "shift": "", "severity": 0}
    return rows.assign(**empty, ci_low=float("nan"), ci_high=float("nan")) if len(rows) else rows


def _seconds(costs: pd.DataFrame, metric: str) -> pd.DataFrame:
    rows = costs[costs["stage"].isin(STAGES[metric])]
    rows = rows.assign(seconds=pd.to_numeric(rows["seconds"]))
    if metric == "train_seconds":
        trained = rows.groupby(list(RUN_KEY), as_index=False).agg(value=("seconds", "sum"))
        return trained.assign(calibrator="none", fit_seed=0, metric=metric)
    fits = rows.groupby([*RUN_KEY, "item", "fit_seed"], as_index=False).agg(value=("seconds", "mean"))
    return fits.rename(columns={"item": "calibrator"}).assign(metric=metric)
