"""Features of easy and of hard images by falling magnitude (FeDLaS, Figure 1d)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting.figures import _points
from calgrid.reporting.probes import probed, seeds
from calgrid.reporting.study import Group, StudyData

PROBE = "profiles"
#: group of images -> colour, style of the line, label
LOOKS = {"easy": ("#029e73", "-", "easy"), "hard": ("#d55e00", "-", "hard"), "all": ("0.35", "--", "all images")}


def caption(data: StudyData, group: Group) -> str:
    """Say what the lines are."""
    tables = probed(data, group, PROBE)
    every = pd.concat([part.table for part in tables.values()])
    images = int(every.loc[every["group"] == "easy", "images"].max())
    right = {name: 100 * part["accuracy"].mean() for name, part in every.groupby("group")}
    return (
        f"Penultimate features of clean test images on {data.label(group)}, the magnitudes of each image in descending "
        f"order and then averaged: the {images:,} images whose label has the highest probability (easy), the "
        f"{images:,} whose label has the lowest (hard), and all {data.test_samples(group):,}; {seeds(tables)}, mean "
        "over seeds. Shaded: from the 10 % to the 90 % quantile over images. The area under a line is the mean L1 "
        "norm, given above each panel for easy and hard images. Easy and hard also differ in correctness: accuracy is "
        f"{right['easy']:.1f} % and {right['hard']:.1f} % over all panels."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one panel a method."""
    tables = probed(data, group, PROBE)
    if not tables:
        return None
    figure, axes = _points.panels(len(tables))
    for ax, (name, part) in zip(axes, tables.items(), strict=True):
        norms = _panel(ax, part.table)
        ax.set_title(f"{name}\nL1: {norms['easy']:.3g} easy, {norms['hard']:.3g} hard", fontsize=8, linespacing=1.3)
    axes[0].set_xlim(1, max(part.table["rank"].max() for part in tables.values()))
    axes[0].set_ylim(0, None)
    handles = [Line2D([], [], color=shade, linestyle=style, label=label) for shade, style, label in LOOKS.values()]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.supxlabel("Rank of the feature", fontsize=9)
    figure.supylabel("Magnitude", fontsize=9)
    return figure


def _panel(ax: Axes, table: pd.DataFrame) -> pd.Series:
    """Draw the groups of one method; return their mean L1 norms."""
    for group, (shade, style, _) in LOOKS.items():
        by_rank = table[table["group"] == group].groupby("rank")[["mean", "q10", "q90"]].mean()
        ax.plot(by_rank.index, by_rank["mean"], color=shade, linestyle=style, linewidth=1.4)
        if group != "all":
            ax.fill_between(by_rank.index, by_rank["q10"], by_rank["q90"], color=shade, alpha=0.15, linewidth=0)
    return table.groupby("group")["l1"].mean()
