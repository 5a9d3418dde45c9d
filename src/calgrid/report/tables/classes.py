"""Tables of classes and of groups of classes: sensitivity, and overconfidence of predictions."""

import functools
from collections.abc import Callable, Iterable

import numpy as np
import pandas as pd

from calgrid.report import captions, text
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.report.table import (
    Cell,
    Columns,
    Section,
    Table,
    grouped,
    interval_cell,
    mean_cell,
    section,
    whole,
    words,
)
from calgrid.statistics.paired import wilson_interval
from calgrid.storage.schema import CLASSES

#: share -> column with its number of images, for the interval
SHARES = {"sensitivity": "count", "precision": "predicted"}
MEANS = (*SHARES, "specificity", "auroc", "confidence")
#: rows of a group that the report shows
MOST_ROWS = 200
#: shares of fewer images are marked
FEW_IMAGES = 10
#: sum over the classes of a group -> share of each class, and its number of images
SUMS = {
    "right": ("sensitivity", "count"),
    "precise": ("precision", "predicted"),
    "confident": ("confidence", "predicted"),
}
GROUP_MEANS = ("accuracy", "precision", "confidence", "gap")


def classes(data: StudyData) -> Table | None:
    """Scores of each class and method, the predictions also with one calibrator."""
    return grouped(
        "classes",
        "Classes",
        "Methods",
        data.groups,
        lambda group: _class_means(data, group),
        lambda group, rows: [_classes(data, group, rows)],
        lambda frame: (
            f"Classes on the {captions.test_split(data)}. {captions.over_seeds(frame)} In "
            f"brackets: {100 * data.level:g} % interval over images (Wilson); few: fewer than "
            f"{FEW_IMAGES} images. The largest gaps come first, those of few images last. "
            "Sensitivity: fraction of the images of the class that are predicted as it; "
            "specificity: fraction of the other images that are not. Of the images predicted as "
            "the class, precision is the fraction that is right, and the gap their mean "
            "confidence minus precision, above 0 for overconfident predictions; its interval is "
            f"that of the precision. Of more than {MOST_ROWS} rows those with the largest gaps "
            "are shown."
        ),
    )


def class_groups(data: StudyData) -> Table | None:
    """Accuracy by group of the true class, overconfidence by group of the predicted class."""
    return grouped(
        "class_groups",
        "Groups of classes",
        "Methods",
        data.groups,
        lambda group: _group_means(data, group),
        lambda group, rows: [_groups(data, group, rows)],
        lambda frame: (
            f"Groups of classes on the {captions.test_split(data)}. {captions.over_seeds(frame)} "
            "Accuracy is that of the images of the classes of a group. Confidence and precision, "
            "the fraction that is right, are those of the images predicted as these classes; "
            "their difference, the gap, is 0 for calibrated predictions and positive for "
            "overconfident ones. Images are not grouped by their true class for it: given the "
            "true class, even calibrated predictions have a gap."
        ),
    )


def _over_seeds(rows: pd.DataFrame, keys: list[str], means: Iterable[str]) -> pd.DataFrame:
    """Means over seeds by method, calibrator and ``keys``: numbers of images, and ``{name}_mean``
    and ``{name}_std``.
    """
    columns = {"n_seeds": ("seed", "nunique")}
    columns |= {images: (images, "mean") for images in SHARES.values()}
    for name in means:
        columns |= {f"{name}_mean": (name, "mean"), f"{name}_std": (name, "std")}
    return rows.groupby(keys, sort=False).agg(**columns).reset_index()


def _class_means(data: StudyData, group: Group) -> pd.DataFrame:
    """Means over seeds of each class with few calibrators."""
    rows = data.rows(CLASSES, group)
    rows = rows[rows["calibrator"].isin(data.few_calibrators())]
    if rows.empty:
        return rows
    means = _over_seeds(rows, ["method", "calibrator", "class", "name"], MEANS)
    for name, size in SHARES.items():
        images = means[size].where(means[size] > 0)
        ends = wilson_interval(means[f"{name}_mean"], images, data.level)
        means[f"{name}_ci_low"], means[f"{name}_ci_high"] = ends
    means["gap_mean"] = means["confidence_mean"] - means["precision_mean"]
    means["gap_ci_low"] = means["confidence_mean"] - means["precision_ci_high"]
    means["gap_ci_high"] = means["confidence_mean"] - means["precision_ci_low"]
    return data.in_order(means, data.order(group))


def _classes(data: StudyData, group: Group, rows: pd.DataFrame) -> Section:
    parts = dict(list(rows.set_index(["class", "method"]).groupby("calibrator", sort=False)))
    first = parts.get(UNCALIBRATED, next(iter(parts.values())))
    by = first.assign(few=first["predicted"] < FEW_IMAGES, size=-first["gap_mean"].abs())
    shown = first.loc[by.sort_values(["few", "size"], kind="stable").index[:MOST_ROWS]]
    columns: Columns = {
        "Class": lambda row: words(row["name"]),
        "Method": lambda row: words(row.name[1]),
        "Images": lambda row: whole(row["count"]),
        "Sensitivity (%)": lambda row: _share(row, "sensitivity"),
        "Specificity (%)": lambda row: mean_cell(row, "specificity"),
        "Predicted": lambda row: whole(round(row["predicted"])),
        "Precision (%)": lambda row: _share(row, "precision"),
    }
    if shown.index.get_level_values("method").nunique() == 1:
        del columns["Method"]
    for name, part in parts.items():
        columns[f"Confidence (%), {name}"] = _from(part, mean_cell, "confidence")
        gap = functools.partial(interval_cell, name="gap", metric="accuracy", signed=True)
        columns[f"Gap (points), {name}"] = _from(part, gap)
    return section(data.label(group), shown, columns)


def _from(
    part: pd.DataFrame, cell: Callable[..., Cell], *names: str
) -> Callable[[pd.Series], Cell]:
    """Cell of the row with the same index in another frame."""
    return lambda row: cell(part.loc[row.name], *names)


def _share(row: pd.Series, name: str) -> Cell:
    """Cell of a share with its interval over images."""
    interval = text.interval("accuracy", row[f"{name}_ci_low"], row[f"{name}_ci_high"])
    few = "few" if row[SHARES[name]] < FEW_IMAGES else ""
    return mean_cell(row, name, beside=f"{interval} {few}")


def _group_means(data: StudyData, group: Group) -> pd.DataFrame:
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
    keys = ["class_group", "method", "calibrator"]
    sums = rows.groupby([*keys, "seed"], sort=False)[[*SHARES.values(), *SUMS]].sum()
    shares = sums.assign(
        accuracy=sums["right"] / sums["count"],
        precision=sums["precise"] / sums["predicted"],
        confidence=sums["confident"] / sums["predicted"],
    )
    shares["gap"] = shares["confidence"] - shares["precision"]
    return data.in_order(_over_seeds(shares.reset_index(), keys, GROUP_MEANS), data.order(group))


def _groups(data: StudyData, group: Group, rows: pd.DataFrame) -> Section:
    sizes = data.runs(group)[0]["class_groups"]
    headings = {
        name: f"{name} ({text.count(size, 'class', 'classes')})" for name, size in sizes.items()
    }
    shown = data.in_order(rows, data.methods, by=("class_group",), class_group=list(sizes))
    columns: Columns = {
        "Group": lambda row: words(headings[row["class_group"]]),
        "Method": lambda row: words(row["method"]),
        "Calibrator": lambda row: words(row["calibrator"]),
        "Images": lambda row: whole(row["count"]),
        "Accuracy (%)": lambda row: mean_cell(row, "accuracy"),
        "Predicted": lambda row: whole(round(row["predicted"])),
        "Precision (%)": lambda row: mean_cell(row, "precision"),
        "Confidence (%)": lambda row: mean_cell(row, "confidence"),
        "Gap (%)": lambda row: mean_cell(row, "gap", signed=True),
    }
    return section(data.label(group), shown, columns)
