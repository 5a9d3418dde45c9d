"""Magnitudes of the features of easy and of hard images in descending order (FeDLaS, Figure 1d)."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.reporting.figure import FigureData
from calgrid.reporting.plotting import points, style
from calgrid.reporting.probes import probed, seeds
from calgrid.reporting.study import Group, StudyData

#: group of images -> colour, style of the line, label
LOOKS: dict[str, tuple[str, Any, str]] = {
    "easy": ("#029e73", "-", "easy"),
    "hard": ("#d55e00", "-", "hard"),
    "all": ("0.35", "--", "all images"),
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Mean and quantiles of each rank of the features, by group of images."""
    return probed(data, group, "profiles")


def caption(frame: FigureData) -> str:
    rows = frame.rows
    images = int(rows.loc[rows["group"] == "easy", "images"].max())
    right = 100 * rows.groupby("group")["accuracy"].mean()
    return (
        f"Penultimate features of clean test images on {frame.label}, the magnitudes of each image "
        f"in descending order and then averaged: the {images:,} images whose label has the highest "
        f"probability (easy), the {images:,} whose label has the lowest (hard), and all "
        f"{frame.study.test_samples(frame.group):,}; {seeds(rows)}, mean over seeds. Shaded: from "
        "the 10 % to the 90 % quantile over images. The area under a line is the mean L1 norm, "
        "given above each panel for easy and hard images. Easy and hard images also differ in "
        f"accuracy: over all panels, accuracy is {right['easy']:.1f} % and {right['hard']:.1f} %."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    tables = frame.parts("name")
    figure, axes = points.panels(len(tables))
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        norms = _panel(ax, table)
        ax.set_title(
            f"{name}\nL1: {norms['easy']:.3g} easy, {norms['hard']:.3g} hard",
            fontsize=8,
            linespacing=1.3,
        )
    axes[0].set_xlim(1, frame.rows["rank"].max())
    axes[0].set_ylim(0, None)
    handles = [
        style.handle(color=shade, linestyle=line, label=label)
        for shade, line, label in LOOKS.values()
    ]
    return points.finished(figure, handles, "Rank of the feature", "Magnitude")


def _panel(ax: Axes, table: pd.DataFrame) -> pd.Series:
    """Draw the groups of one method; return their mean L1 norms."""
    for group, (shade, line, _) in LOOKS.items():
        by_rank = table[table["group"] == group].groupby("rank")[["mean", "q10", "q90"]].mean()
        ax.plot(by_rank.index, by_rank["mean"], color=shade, linestyle=line, linewidth=1.4)
        if group != "all":
            ax.fill_between(
                by_rank.index, by_rank["q10"], by_rank["q90"], color=shade, alpha=0.15, linewidth=0
            )
    return table.groupby("group")["l1"].mean()
