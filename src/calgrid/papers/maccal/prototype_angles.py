"""Angles between the prototypes of classes, one violin per method (MaC-Cal, Figure 2b and e)."""

import math
from collections.abc import Sequence
from typing import cast

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.probes import probed, seeds
from calgrid.report.study import Group, StudyData

#: kind of prototype -> title of its panel
KINDS = {"features": "mean features", "logits": "mean logits", "head": "rows of the last layer"}
#: largest number of pairs that are also drawn as points
FEW = 200
#: text at the right end of a line of a panel
BESIDE: style.Look = {
    "xycoords": ("axes fraction", "data"),
    "xytext": (-3, 0),
    "textcoords": "offset points",
    "ha": "right",
    "va": "center",
    "fontsize": 8,
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Angles of all pairs of classes, by kind of prototype."""
    return probed(data, group, "prototypes")


def caption(frame: FigureData) -> str:
    return (
        f"Angles between the prototypes of every two classes on {frame.label}, after the mean of "
        f"all prototypes was subtracted; {seeds(frame.rows)}, pairs of all seeds together. "
        "Prototypes: means of the penultimate features and of the logits over the clean test "
        "images of a class, and the rows of the last linear layer. Bars: median; beside each "
        "violin: standard deviation over pairs, mean over seeds, which is 0 if all classes are "
        "equally far apart. Dashed: the angle of such a simplex. A second stage on frozen "
        "features does not change the first panel; a network without a linear last layer is "
        "missing in the third."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per kind of prototype."""
    rows, names = frame.rows, list(dict.fromkeys(frame.rows["name"]))
    figure = style.new_figure(style.WIDTH, 1.3 + 0.42 * len(names))
    axes = figure.subplots(1, len(KINDS), sharey=True)
    for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
        _panel(ax, rows[rows["of"] == kind], names)
        ax.set_title(title)
        ax.set_xlabel("Angle (degrees)")
    axes[0].set_yticks(range(len(names)), names)
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    said = "simplex, all classes equally far apart"
    handles = [style.handle(color=style.GREY, linestyle="--", label=said)]
    figure.legend(handles=handles, loc="outside upper center")
    return figure


def _panel(ax: Axes, table: pd.DataFrame, names: Sequence[str]) -> None:
    for place, name in enumerate(names):
        rows = table[table["name"] == name].dropna(subset="angle_centred")
        angles = rows["angle_centred"].to_numpy()
        if len(angles) == 0:
            continue
        shade = style.colour(names, name)
        if np.ptp(angles) > 0:
            shape: style.Look = {"orientation": "horizontal", "widths": 0.8, "showextrema": False}
            violin = ax.violinplot(angles, [place], **shape)
            for body in cast(list[PolyCollection], violin["bodies"]):
                body.set(facecolor=shade, alpha=0.3, linewidth=0)
        if len(angles) <= FEW:
            ax.plot(angles, np.full(len(angles), place), "|", color=shade, markersize=5, alpha=0.5)
        ax.vlines(np.median(angles), place - 0.3, place + 0.3, color=shade, linewidth=2)
        spread = rows.groupby("seed")["angle_centred"].std(ddof=0).mean()
        ax.annotate(f"± {spread:.1f}", (1, place), **BESIDE)
        classes = len(set(rows["class_a"]) | set(rows["class_b"]))
        if classes > 1:
            simplex = math.degrees(math.acos(-1 / (classes - 1)))
            ax.axvline(simplex, color=style.GREY, linestyle="--", linewidth=1, zorder=0)
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))  # room for the numbers
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
