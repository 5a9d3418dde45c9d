"""Mean size of conformal sets against their coverage, on clean and shifted data."""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.metrics.conformal import SCORES
from calgrid.report import captions
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData, among
from calgrid.report.tables.conformal import set_means

NAMES = list(SCORES)


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Rows of the reference method on the clean test split and at the highest severity."""
    rows = set_means(data, group)
    if rows.empty:
        return rows
    rows = rows[rows["method"] == data.reference(group)]
    return rows[rows["severity"].isin([0, rows["severity"].max()])]


def caption(frame: FigureData) -> str:
    rows = frame.rows
    shifted = rows["severity"].max()
    right = f", right: corruptions of severity {shifted}, same thresholds" if shifted else ""
    return (
        f"Coverage of conformal sets against their mean size for {rows['method'].iloc[0]} on "
        f"{frame.label}, {captions.seeds(rows)}. One colour per score, one marker per calibrator; "
        "dashed: the coverage asked for; the upper left is best. Left: clean test split "
        f"({frame.images}){right}."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one row per coverage, and one column for each of clean and shifted data."""
    rows, known = frame.rows, frame.study.calibrators
    alphas, severities = list(rows["alpha"].unique()), list(rows["severity"].unique())
    shape = len(alphas), len(severities)
    figure, axes = style.subplots(style.WIDTH, 2.8 * shape[0], *shape, squeeze=False, sharey="row")
    for line, alpha in zip(axes, alphas, strict=True):
        for ax, severity in zip(line, severities, strict=True):
            part = rows[(rows["alpha"] == alpha) & (rows["severity"] == severity)]
            for row in part.itertuples():
                look = style.dot(
                    color=style.colour(NAMES, row.conformal),
                    marker=style.marker(known, row.calibrator),
                )
                place = row.set_size_mean, 100 * row.coverage_mean
                ax.plot(*place, markersize=6.5, alpha=0.85, zorder=2, **look)
            ax.axhline(100 * (1 - alpha), color=style.GREY, linewidth=0.8, linestyle="--", zorder=1)
        line[0].set_ylabel(f"Coverage (%), {100 * (1 - alpha):g} asked for")
    for upper, lower, severity in zip(axes[0], axes[-1], severities, strict=True):
        upper.set_title(f"severity {severity}" if severity else "clean test split")
        lower.set_xlabel("Mean size of the sets")
    dots = {
        name: style.dot(color=style.colour(NAMES, name), markersize=7)
        for name in among(NAMES, rows["conformal"])
    }
    shapes = {
        style.calibrator_label(name): style.dot(color=style.GREY, marker=style.marker(known, name))
        for name in frame.calibrators()
    }
    legends = {"score": style.handles(dots), "calibrator": style.handles(shapes)}
    style.legend_beside(figure, legends)
    return figure
