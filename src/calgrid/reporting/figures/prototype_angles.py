"""Angles between the prototypes of classes, one violin a method (MaC-Cal, Figure 2b and e)."""

import math
from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting.figures import _style
from calgrid.reporting.probes import Probed, probed, seeds
from calgrid.reporting.study import Group, StudyData

PROBE = "prototypes"
#: kind of prototype -> title of its panel
KINDS = {"features": "mean features", "logits": "mean logits", "head": "rows of the last layer"}
#: pairs that are drawn as points too
FEW = 200


def caption(data: StudyData, group: Group) -> str:
    """Say what the violins are."""
    tables = probed(data, group, PROBE)
    return (
        f"Angles between the prototypes of every two classes on {data.label(group)}, after the mean of all prototypes "
        "was subtracted: means of the penultimate features and of the logits over the clean test images of a class, "
        f"and the rows of the last linear layer; {seeds(tables)}, pairs of all seeds together. Bars: median; beside "
        "each violin the standard deviation over pairs, mean over seeds, which is 0 where all classes are equally far "
        "apart. Dashed: the angle of such a simplex. A second stage on frozen features leaves the first panel as it "
        "is; a network without a linear last layer is missing in the third."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one panel a kind of prototype."""
    tables = probed(data, group, PROBE)
    if not tables:
        return None
    figure = _style.new_figure(_style.WIDTH, 1.3 + 0.42 * len(tables))
    axes = figure.subplots(1, len(KINDS), sharey=True)
    for ax, (kind, title) in zip(axes, KINDS.items(), strict=True):
        _panel(ax, tables, kind)
        ax.set_title(title)
        ax.set_xlabel("Angle (degrees)")
    axes[0].set_yticks(range(len(tables)), list(tables))
    axes[0].set_ylim(len(tables) - 0.5, -0.5)
    handles = [Line2D([], [], color=_style.GREY, linestyle="--", label="simplex, all classes equally far apart")]
    figure.legend(handles=handles, loc="outside upper center")
    return figure


def _panel(ax: Axes, tables: Mapping[str, Probed], kind: str) -> None:
    names, highest = list(tables), 0.0
    for place, (name, part) in enumerate(tables.items()):
        rows = part.table[part.table["of"] == kind].dropna(subset="angle_centred")
        angles = rows["angle_centred"].to_numpy()
        if len(angles) == 0:
            continue
        shade = _style.colour(names, name)
        if np.ptp(angles) > 0:
            body = ax.violinplot(angles, [place], orientation="horizontal", widths=0.8, showextrema=False)["bodies"][0]
            body.set(facecolor=shade, alpha=0.3, linewidth=0)
        if len(angles) <= FEW:
            ax.plot(angles, np.full(len(angles), place), "|", color=shade, markersize=5, alpha=0.5)
        ax.vlines(np.median(angles), place - 0.3, place + 0.3, color=shade, linewidth=2)
        spread = rows.groupby("seed")["angle_centred"].std(ddof=0).mean()
        ax.annotate(
            f"± {spread:.1f}",
            (1, place),
            xycoords=("axes fraction", "data"),
            xytext=(-3, 0),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
        )
        highest = max(highest, float(angles.max()))
        classes = len(set(rows["class_a"]) | set(rows["class_b"]))
        if classes > 1:
            ax.axvline(
                math.degrees(math.acos(-1 / (classes - 1))), color=_style.GREY, linestyle="--", linewidth=1, zorder=0
            )
    low, high = ax.get_xlim()
    ax.set_xlim(low, high + 0.22 * (high - low))  # room for the numbers
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
