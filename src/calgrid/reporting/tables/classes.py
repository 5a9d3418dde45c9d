"""Table of classes: images, accuracy and calibration of each class."""

import dataclasses
import math

import pandas as pd

from calgrid.reporting import captions, text
from calgrid.reporting.study import Group, StudyData
from calgrid.reporting.table import Cell, Section, Table, by_group, whole, words
from calgrid.statistics.paired import wilson_interval
from calgrid.storage.schema import CLASSES

KEYS = ["method", "calibrator", "class", "name"]
METRICS = ("accuracy", "ece", "ece_debiased")
#: classes of a group that the report shows
MOST_CLASSES = 50
#: classes with fewer images are marked
FEW_IMAGES = 10


def classes(data: StudyData) -> Table | None:
    """Scores of each class, uncalibrated and with one calibrator; the CSV file has all methods."""
    frame, sections = by_group(
        data.groups,
        lambda group: _means(data, group),
        lambda group, rows: [_section(data, group, rows)],
    )
    if frame.empty:
        return None
    caption = (
        f"Classes on the {captions.test_split(data)}, of {data.baseline} or else the first method. "
        f"{captions.over_seeds(frame)} Accuracy: fraction of the "
        "images of the class that are predicted correctly; brackets: "
        f"{100 * data.level:g} % interval over its images (Wilson). few: fewer than {FEW_IMAGES} "
        "images. ECE: that of the probability of the class, over the images of all classes; its "
        f"mean over classes is CECE. Of more than {MOST_CLASSES} classes those with the lowest "
        "accuracy are shown."
    )
    return Table("classes", "Classes", "Methods", caption, frame, sections)


def _means(data: StudyData, group: Group) -> pd.DataFrame:
    """Means over seeds of each class with few calibrators."""
    rows = data.rows(CLASSES, group)
    rows = rows[rows["calibrator"].isin(data.few_calibrators())]
    if rows.empty:
        return rows
    grouped = rows.groupby(KEYS, sort=False)
    columns = {"n_seeds": ("seed", "nunique"), "count": ("count", "mean")}
    for metric in METRICS:
        columns[f"{metric}_mean"] = (metric, "mean")
        columns[f"{metric}_std"] = (metric, "std")
    means = grouped.agg(**columns).reset_index()
    images = means["count"].where(means["count"] > 0)
    ends = wilson_interval(means["accuracy_mean"], images, data.level)
    means["accuracy_ci_low"], means["accuracy_ci_high"] = ends
    return data.in_order(means, data.order(group))


def _section(data: StudyData, group: Group, rows: pd.DataFrame) -> Section:
    shown = rows[rows["method"] == data.reference(group)]
    parts = dict(list(shown.set_index("class").groupby("calibrator", sort=False)))
    first = next(iter(parts.values()))
    if len(first) > MOST_CLASSES:
        first = first.nsmallest(MOST_CLASSES, "accuracy_mean")
    header = ["Class", "Images"]
    header += [f"{text.in_unit(metric)}, {name}" for name in parts for metric in METRICS]
    lines = []
    for number, row in first.iterrows():
        few = "few" if row["count"] < FEW_IMAGES else ""
        line = [words(row["name"]), dataclasses.replace(whole(row["count"]), spread=few)]
        line += [_cell(part.loc[number], metric) for part in parts.values() for metric in METRICS]
        lines.append(line)
    return Section(data.label(group), header, lines)


def _cell(row: pd.Series, metric: str) -> Cell:
    mean, std = float(row[f"{metric}_mean"]), row[f"{metric}_std"]
    low, high = row.get(f"{metric}_ci_low", math.nan), row.get(f"{metric}_ci_high", math.nan)
    interval = text.interval(metric, low, high)
    over_seeds = f"± {text.format_metric(metric, std)}" if row["n_seeds"] > 1 else ""
    return Cell(text.format_metric(metric, mean), f"{over_seeds} {interval}".strip(), sort=mean)
