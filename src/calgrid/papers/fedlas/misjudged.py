"""Failure cases of the indicator of FeDLaS: wrong answers with large and right answers with small
feature norms.
"""

import io

import matplotlib.image
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.probes import probed
from calgrid.report.study import Group, StudyData

PHOTOGRAPHS = True
#: group of the probe -> heading
HEADINGS = {
    "wrong": "wrong answers with the largest norms",
    "right": "right answers with the smallest norms",
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Images of the first seed."""
    rows = probed(data, group, "misjudged")
    return rows[rows["seed"] == rows["seed"].min()] if len(rows) else rows


def caption(frame: FigureData) -> str:
    known = frame.rows.groupby("name", sort=False)[["auroc", "auroc_confidence"]].first()
    shares = "; ".join(
        f"{name} {100 * a:.1f} against {100 * b:.1f} %" for name, a, b in known.itertuples()
    )
    return (
        f"Clean test images of {frame.label} with the worst failures of the indicator of FeDLaS, "
        f"out of {frame.images}; one seed. Wrong answers with the largest L1 norm of the "
        "penultimate features, and right answers with the smallest. Above an image: class, answer "
        "if it differs, and confidence; below: the norm in standard deviations from its mean over "
        "the test images. These are extreme cases. AUROC of the norm for correctness over all "
        f"test images, against that of the confidence: {shares}."
    )


def draw(frame: FigureData) -> Figure:
    """Draw two lines of images per method."""
    tables = frame.parts("name")
    columns = int(frame.rows["rank"].max())
    figure = style.new_figure(style.WIDTH, 0.3 + 2.85 * len(tables))
    figure.set_layout_engine("constrained", h_pad=0.06)  # room for the labels below the last line
    for part, (name, table) in zip(
        figure.subfigures(len(tables), 1, squeeze=False).ravel(), tables.items(), strict=True
    ):
        for line, (group, heading) in zip(part.subfigures(2, 1), HEADINGS.items(), strict=True):
            line.suptitle(f"{name}: {heading}", fontsize=9, x=0.01, ha="left")
            axes = line.subplots(1, columns, squeeze=False).ravel()
            rows = table[table["group"] == group]
            for ax, row in zip(axes, rows.to_dict("records"), strict=False):
                _picture(ax, row)
            for ax in axes[len(rows) :]:
                ax.remove()
    return figure


def _picture(ax: Axes, row: pd.Series) -> None:
    ax.imshow(
        matplotlib.image.imread(io.BytesIO(row["picture"]), format="png"), interpolation="nearest"
    )
    ax.set_xticks([])
    ax.set_yticks([])
    right = row["class"] == row["answer"]
    said = row["class"] if right else f"{row['class']}:\n{row['answer']}"
    ax.set_title(f"{said}\n{100 * row['confidence']:.0f} %", fontsize=8, pad=2)
    ax.set_xlabel(f"{row['indicator']:+.1f}", fontsize=8, labelpad=1)
