"""Table of classes: how well each class is found, and how overconfident its predictions are."""

import math
from collections.abc import Callable

import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Section,
    Table,
    by_group,
    fraction_cell,
    section,
    whole,
    words,
)
from calgrid.statistics.paired import wilson_interval
from calgrid.storage.schema import CLASSES

KEYS = ["method", "calibrator", "class", "name"]
#: share -> column with the number of images of which it is one, for its interval
SHARES = {"sensitivity": "count", "precision": "predicted"}
MEANS = (*SHARES, "specificity", "auroc", "confidence")
#: rows of a group that the report shows
MOST_ROWS = 200
#: shares of fewer images are marked
FEW_IMAGES = 10


def classes(data: StudyData) -> Table | None:
    """Scores of each class and method, the predictions also with one calibrator."""
    frame, sections = by_group(
        data.groups,
        lambda group: _means(data, group),
        lambda group, rows: [_section(data, group, rows)],
    )
    if frame.empty:
        return None
    caption = (
        f"Classes on the {captions.test_split(data)}. {captions.over_seeds(frame)} In brackets: "
        f"{100 * data.level:g} % interval over images (Wilson); few: fewer than {FEW_IMAGES} "
        "images. The largest gaps come first, those of few images last. Sensitivity: "
        "fraction of the images of the class that are predicted as it; specificity: fraction of "
        "the other images that are not. Of the "
        "images predicted as the class, precision is the fraction that is right, and the gap their "
        "mean confidence minus precision, above 0 for overconfident predictions; its interval is "
        "that of the precision. "
        f"Of more than {MOST_ROWS} rows those with the largest gaps are shown."
    )
    return Table("classes", "Classes", "Methods", caption, frame, sections)


def _means(data: StudyData, group: Group) -> pd.DataFrame:
    """Means over seeds of each class with few calibrators."""
    rows = data.rows(CLASSES, group)
    rows = rows[rows["calibrator"].isin(data.few_calibrators())]
    if rows.empty:
        return rows
    columns = {"n_seeds": ("seed", "nunique")}
    columns |= {size: (size, "mean") for size in SHARES.values()}
    for name in MEANS:
        columns[f"{name}_mean"] = (name, "mean")
        columns[f"{name}_std"] = (name, "std")
    means = rows.groupby(KEYS, sort=False).agg(**columns).reset_index()
    for name, size in SHARES.items():
        images = means[size].where(means[size] > 0)
        ends = wilson_interval(means[f"{name}_mean"], images, data.level)
        means[f"{name}_ci_low"], means[f"{name}_ci_high"] = ends
    means["gap_mean"] = means["confidence_mean"] - means["precision_mean"]
    means["gap_ci_low"] = means["confidence_mean"] - means["precision_ci_high"]
    means["gap_ci_high"] = means["confidence_mean"] - means["precision_ci_low"]
    return data.in_order(means, data.order(group))


def _section(data: StudyData, group: Group, rows: pd.DataFrame) -> Section:
    parts = dict(list(rows.set_index(["class", "method"]).groupby("calibrator", sort=False)))
    first = parts.get(UNCALIBRATED, next(iter(parts.values())))
    by = first.assign(few=first["predicted"] < FEW_IMAGES, size=-first["gap_mean"].abs())
    shown = first.loc[by.sort_values(["few", "size"], kind="stable").index[:MOST_ROWS]]
    columns: Columns = {
        "Class": lambda row: words(row["name"]),
        "Method": lambda row: words(row.name[1]),
        "Images": lambda row: whole(row["count"]),
        "Sensitivity (%)": lambda row: _cell(row, "sensitivity"),
        "Specificity (%)": lambda row: _cell(row, "specificity"),
        "Predicted": lambda row: whole(round(row["predicted"])),
        "Precision (%)": lambda row: _cell(row, "precision"),
    }
    if shown.index.get_level_values("method").nunique() == 1:
        del columns["Method"]
    for name, part in parts.items():
        columns[f"Confidence (%), {name}"] = _from(part, _cell, "confidence")
        columns[f"Gap (points), {name}"] = _from(part, _gap)
    return section(data.label(group), shown, columns)


def _from(
    part: pd.DataFrame, cell: Callable[..., Cell], *names: str
) -> Callable[[pd.Series], Cell]:
    """Cell of the row with the same index in another frame."""
    return lambda row: cell(part.loc[row.name], *names)


def _gap(row: pd.Series) -> Cell:
    gap = float(row["gap_mean"])
    interval = text.interval("accuracy", row["gap_ci_low"], row["gap_ci_high"])
    sort = None if math.isnan(gap) else gap
    return Cell(text.format_metric("accuracy", gap, signed=True), interval, sort=sort)


def _cell(row: pd.Series, name: str) -> Cell:
    """Cell of a fraction; shares have an interval over images."""
    beside = ""
    if name in SHARES:
        interval = text.interval("accuracy", row[f"{name}_ci_low"], row[f"{name}_ci_high"])
        beside = f"{interval} {'few' if row[SHARES[name]] < FEW_IMAGES else ''}"
    return fraction_cell(row, name, beside)
