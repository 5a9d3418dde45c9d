"""Magnitudes of the features of easy and of hard images in descending order (FeDLaS, Figure 1d)."""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.probes import probed, seeds
from calgrid.report.study import Group, StudyData

#: group of images -> its line
LOOKS: dict[str, style.Look] = {
    "easy": {"color": "#029e73", "linestyle": "-", "label": "easy"},
    "hard": {"color": "#d55e00", "linestyle": "-", "label": "hard"},
    "all": {"color": "0.35", "linestyle": "--", "label": "all images"},
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
        f"in descending order and then averaged; {seeds(rows)}, mean over seeds. Lines: the "
        f"{images:,} images whose label has the highest probability (easy), the {images:,} whose "
        f"label has the lowest (hard), and all {frame.images}. Shaded: from "
        "the 10 % to the 90 % quantile over images. The area under a line is the mean L1 norm, "
        "given above each panel for easy and hard images. Easy and hard images also differ in "
        f"accuracy: over all panels, accuracy is {right['easy']:.1f} % and {right['hard']:.1f} %."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    tables = frame.parts("name")
    figure, axes = points.panels(len(tables))
    for ax, (name, table) in zip(axes, tables.items(), strict=True):
        for group, look in LOOKS.items():
            own = table[table["group"] == group]
            by_rank = own.groupby("rank")[["mean", "q10", "q90"]].mean()
            ax.plot(by_rank.index, by_rank["mean"], linewidth=1.4, **look)
            if group != "all":
                shaded = {"color": look["color"], "alpha": 0.15, "linewidth": 0}
                ax.fill_between(by_rank.index, by_rank["q10"], by_rank["q90"], **shaded)
        norms = table.groupby("group")["l1"].mean()
        points.title(ax, name, f"L1: {norms['easy']:.3g} easy, {norms['hard']:.3g} hard")
    axes[0].set_xlim(1, frame.rows["rank"].max())
    axes[0].set_ylim(0, None)
    handles = [style.handle(**look) for look in LOOKS.values()]
    return points.finished(figure, handles, "Rank of the feature", "Magnitude")
