"""Table of conformal prediction sets: coverage and size after each calibrator."""

import functools
import math
from collections.abc import Iterator

import pandas as pd

from calgrid.metrics.conformal import SET_METRICS
from calgrid.report import captions, text
from calgrid.report.study import Group, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Section,
    Table,
    calibrated_columns,
    grouped,
    mean_cell,
    section,
    words,
)
from calgrid.storage.schema import CONFORMAL

KEYS = ["alpha", "severity", "method", "calibrator", "conformal"]
#: severity -> images in headings
IMAGES = {0: "clean test", -1: "shifted"}
#: heading, factor to the shown unit and decimals of each metric
SHOWN = {
    "coverage": ("Coverage %", 100.0, 1),
    "set_size": ("Size", 1.0, 2),
    "set_empty": ("Empty %", 100.0, 1),
    "sscv": ("SSCV %", 100.0, 1),
    "covgap": ("CovGap %", 100.0, 1),
}


def conformal(data: StudyData) -> Table | None:
    """Metrics of prediction sets on the clean test split, and under shift by severity."""
    columns: Columns = {**calibrated_columns(data), "Score": lambda row: words(row["conformal"])}
    for metric, (title, *_) in SHOWN.items():
        columns[title] = functools.partial(_cell, metric=metric)

    def sections(group: Group, rows: pd.DataFrame) -> Iterator[Section]:
        for (alpha, severity), part in rows.groupby(["alpha", "severity"], sort=False):
            images = IMAGES.get(severity, f"severity {severity}")
            heading = f"{data.label(group)}: {100 * (1 - alpha):g} % asked for, {images}"
            yield section(heading, part, columns)

    def caption(frame: pd.DataFrame) -> str:
        n_threshold, covered = frame["n_threshold"].astype(int), 1.0 - frame["alpha"]
        # largest standard deviation over draws of the validation rows: that of Beta(k, n + 1 - k)
        deviation = math.sqrt((covered * (1.0 - covered) / (n_threshold + 2)).max())
        return (
            "Prediction sets after a calibrator, on the clean test split and, with the same "
            "thresholds, on corruptions (mean over those of a severity); "
            f"{captions.seeds(frame)}. ± is the standard deviation over seeds; with one seed, "
            f"brackets are {100 * data.level:g} % bootstrap intervals over test images (at the "
            "highest severity the means of their ends over the corruptions, at least as far apart "
            "as those of the mean). On the clean test split a set contains the label with the "
            "probability asked for, on average over validation and test images, whatever the "
            "network; under shift nothing is guaranteed. The coverage of one threshold varies with "
            f"its {n_threshold.min():,} validation images (standard deviation up to "
            f"{100 * deviation:.1f} points). Calibrators were fitted on the other half of the "
            "validation rows, so their numbers differ from those of other tables. SSCV: largest "
            "gap of the coverage among sets of similar size. CovGap: mean gap over classes."
        )

    title, select = "Conformal sets", functools.partial(set_means, data)
    return grouped("conformal", title, "Calibrators", data.groups, select, sections, caption)


def set_means(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of a group: for each alpha, severity (0 is the clean test split), method,
    calibrator and score, each metric's ``_mean``, ``_std``, ``_ci_low`` and ``_ci_high``.

    Corruptions of a severity are averaged for each run; a shift without severities has its own rows
    with severity -1.
    """
    rows = data.rows(CONFORMAL, group)
    if rows.empty:
        return pd.DataFrame()
    unnumbered = (rows["split"] == "shift") & (rows["severity"] == 0)
    rows["severity"] = rows["severity"].where(~unnumbered, -1)
    per_run = rows.groupby([*KEYS, "metric", "seed"], sort=False, observed=True)
    runs = per_run[["value", "ci_low", "ci_high", "n_threshold"]].mean().reset_index()
    grouped = runs.groupby([*KEYS, "metric"], sort=False, observed=True)
    statistics = grouped.agg(
        mean=("value", "mean"),
        std=("value", "std"),
        ci_low=("ci_low", "mean"),
        ci_high=("ci_high", "mean"),
    )
    columns = []
    for name in statistics:
        columns.append(statistics[name].unstack("metric")[list(SET_METRICS)].add_suffix(f"_{name}"))
    wide = pd.concat(columns, axis=1)
    counted = runs.groupby(KEYS, sort=False, observed=True)
    wide["n_seeds"], wide["n_threshold"] = counted["seed"].nunique(), counted["n_threshold"].min()
    frame = data.in_order(wide.reset_index(), data.order(group))
    frame["alpha"] = frame["alpha"].astype(float)
    return frame.sort_values(["severity", "alpha"], ascending=[True, False], kind="stable")


def _cell(row: pd.Series, metric: str) -> Cell:
    _, factor, decimals = SHOWN[metric]
    ends = row[[f"{metric}_ci_low", f"{metric}_ci_high"]].to_numpy(float)
    interval = ""
    if row["n_seeds"] == 1 and not math.isnan(ends[0]):
        low, high = (text.decimal(factor * end, decimals) for end in ends)
        interval = f"[{low}, {high}]"
    return mean_cell(row, metric, factor, decimals, interval)
