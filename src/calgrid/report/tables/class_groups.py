"""Table of groups of classes, such as head and tail, for data sets that have them."""

import numpy as np
import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import Group, StudyData
from calgrid.report.table import (
    Columns,
    Section,
    Table,
    by_group,
    fraction_cell,
    section,
    whole,
    words,
)
from calgrid.storage.schema import CLASSES

KEYS = ["class_group", "method", "calibrator"]
#: sum over the classes of a group -> share of each class, and the images of which it is one
SUMS = {
    "right": ("sensitivity", "count"),
    "precise": ("precision", "predicted"),
    "confident": ("confidence", "predicted"),
}
MEANS = ("accuracy", "precision", "confidence", "gap")


def class_groups(data: StudyData) -> Table | None:
    """Accuracy by the group of the true class, overconfidence by that of the predicted class."""
    frame, sections = by_group(
        data.groups,
        lambda group: group_means(data, group),
        lambda group, rows: [_section(data, group, rows)],
    )
    if frame.empty:
        return None
    caption = (
        f"Groups of classes on the {captions.test_split(data)}. {captions.over_seeds(frame)} "
        "Accuracy is that of the images of the classes of a group. Confidence and precision, the "
        "fraction that is right, are those of the images predicted as these classes; their "
        "difference, the gap, is 0 for calibrated predictions and positive for overconfident "
        "ones. Images are not grouped by their true class for it: given the true class, even "
        "calibrated predictions have a gap."
    )
    return Table("class_groups", "Groups of classes", "Methods", caption, frame, sections)


def group_means(data: StudyData, group: Group) -> pd.DataFrame:
    """Means over seeds of each group of classes with few calibrators; empty without groups."""
    sizes = data.runs(group)[0].get("class_groups")
    if sizes is None:
        return pd.DataFrame()
    rows = data.rows(CLASSES, group, calibrator=data.few_calibrators())
    names = np.repeat(list(sizes), list(sizes.values()))
    rows["class_group"] = names[rows["class"]]
    for name, (share, images) in SUMS.items():
        # shares of no images are NaN
        rows[name] = (rows[share] * rows[images]).fillna(0)
    sums = rows.groupby([*KEYS, "seed"], sort=False)[["count", "predicted", *SUMS]].sum()
    found = sums[["count", "predicted"]].assign(
        accuracy=sums["right"] / sums["count"],
        precision=sums["precise"] / sums["predicted"],
        confidence=sums["confident"] / sums["predicted"],
    )
    found["gap"] = found["confidence"] - found["precision"]
    columns = {"n_seeds": ("count", "size")}
    columns |= {name: (name, "mean") for name in ("count", "predicted")}
    for name in MEANS:
        columns[f"{name}_mean"] = (name, "mean")
        columns[f"{name}_std"] = (name, "std")
    means = found.groupby(KEYS, sort=False).agg(**columns).reset_index()
    return data.in_order(means, data.order(group))


def _section(data: StudyData, group: Group, rows: pd.DataFrame) -> Section:
    sizes = data.runs(group)[0]["class_groups"]
    headings, order = {}, list(sizes).index
    for name, size in sizes.items():
        headings[name] = f"{name} ({text.count(size, 'class', 'classes')})"
    shown = rows.sort_values("class_group", key=lambda names: names.map(order), kind="stable")
    columns: Columns = {
        "Group": lambda row: words(headings[row["class_group"]]),
        "Method": lambda row: words(row["method"]),
        "Calibrator": lambda row: words(row["calibrator"]),
        "Images": lambda row: whole(row["count"]),
        "Accuracy (%)": lambda row: fraction_cell(row, "accuracy"),
        "Predicted": lambda row: whole(round(row["predicted"])),
        "Precision (%)": lambda row: fraction_cell(row, "precision"),
        "Confidence (%)": lambda row: fraction_cell(row, "confidence"),
        "Gap (%)": lambda row: fraction_cell(row, "gap", signed=True),
    }
    return section(data.label(group), shown, columns)
