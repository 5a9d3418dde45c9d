"""Test images in the plane by t-SNE of features and of logits (MaC-Cal, Figure 2a and d)."""

import math

import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.probes import probed
from calgrid.report.study import Group, StudyData

#: largest number of classes with distinct colours and a legend; more classes have colours from a
#: hue circle
NAMED = 10
#: opacity of a point whose class is certain, and of one whose probabilities are equal
CERTAIN, UNCERTAIN = 0.9, 0.12


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Positions of the images of the first seed of each method, by space."""
    rows = probed(data, group, "embedding", ("perplexity",))
    if rows.empty:
        return rows
    return rows[rows["seed"] == rows.groupby("name")["seed"].transform("min")]


def caption(frame: FigureData) -> str:
    first = frame.rows[frame.rows["name"] == frame.rows["name"].iloc[0]]
    images = first.groupby("space").size().max()
    return (
        f"t-SNE (perplexity {first['perplexity'].iloc[0]:g}) of {images:,} images of the clean "
        f"test split, equally many of each class, on {frame.label}; one seed (seed "
        f"{first['seed'].min()}). Colours are labels; paler points have a larger entropy of the "
        "softmax. Interpret neighbourhoods only, not sizes of clusters or distances between them, "
        "and do not compare positions between panels. Accuracy, NLL and calibration are in the "
        "tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one row per space and one column per method, in blocks of four methods."""
    rows = frame.rows
    spaces, names = list(rows["space"].unique()), list(rows["name"].unique())
    columns = min(points.COLUMNS, len(names))
    blocks = [names[place : place + columns] for place in range(0, len(names), columns)]
    figure = style.new_figure(max(4.2, 2.15 * columns), 0.7 + 2.2 * len(spaces) * len(blocks))
    axes = figure.subplots(len(spaces) * len(blocks), columns, squeeze=False)
    classes = sorted(map(int, rows["label"].unique()))
    few = len(classes) <= NAMED
    colours = sns.color_palette("tab10") if few else sns.husl_palette(len(classes), s=0.85)
    shades = {label: to_rgb(shade) for label, shade in zip(classes, colours, strict=False)}
    for block, members in enumerate(blocks):
        for row, space in enumerate(spaces):
            line = axes[block * len(spaces) + row]
            for ax, name in zip(line, members, strict=False):
                _panel(ax, rows[(rows["name"] == name) & (rows["space"] == space)], shades)
                ax.set_title(f"{name}, {space}")
            for ax in line[len(members) :]:
                ax.remove()
    if few:
        looks = {str(label): style.dot(markersize=5, color=shades[label]) for label in classes}
        figure.legend(
            handles=style.handles(looks),
            loc="outside upper center",
            title="class",
            ncols=len(looks),
            columnspacing=0.8,
        )
    return figure


def _panel(ax: Axes, table: pd.DataFrame, shades: dict[int, tuple[float, float, float]]) -> None:
    certainty = 1 - table["entropy"].to_numpy() / math.log(max(len(shades), 2))
    opacity = np.clip(UNCERTAIN + (CERTAIN - UNCERTAIN) * certainty, UNCERTAIN, CERTAIN)
    colours = np.column_stack([table["label"].map(shades).tolist(), opacity])
    ax.scatter(table["x"], table["y"], 8, color=colours, linewidths=0, rasterized=True)
    ax.set(xticks=[], yticks=[])
    ax.grid(visible=False)
