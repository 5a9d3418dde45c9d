"""Mean size of conformal sets against their coverage, on clean and shifted data."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.metrics.conformal import SCORES
from calgrid.reporting import captions
from calgrid.reporting.figure import FigureData
from calgrid.reporting.plotting import style
from calgrid.reporting.study import Group, StudyData, among
from calgrid.reporting.tables.conformal import set_means

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
        f"{frame.label}, {captions.seeds(rows)}: one colour per score, one marker per calibrator; "
        "dashed: the coverage asked for; the upper left is best. Left: clean test split "
        f"({frame.images}){right}."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one row per coverage, and one column for each of clean and shifted data."""
    rows, calibrators = frame.rows, frame.calibrators()
    alphas, severities = (list(dict.fromkeys(rows[name])) for name in ("alpha", "severity"))
    shape = len(alphas), len(severities)
    figure = style.new_figure(style.WIDTH, 2.8 * shape[0])
    axes = figure.subplots(*shape, squeeze=False, sharey="row")
    for line, alpha in enumerate(alphas):
        for column, severity in enumerate(severities):
            part = rows[(rows["alpha"] == alpha) & (rows["severity"] == severity)]
            _points(axes[line, column], part, calibrators)
            axes[line, column].axhline(
                100 * (1 - alpha), color=style.GREY, linewidth=0.8, linestyle="--", zorder=1
            )
        axes[line, 0].set_ylabel(f"Coverage (%), {100 * (1 - alpha):g} asked for")
    for column, severity in enumerate(severities):
        axes[0, column].set_title(f"severity {severity}" if severity else "clean test split")
        axes[-1, column].set_xlabel("Mean size of the sets")
    shown = among(NAMES, rows["conformal"])
    dots = [
        style.handle(
            linestyle="", marker="o", markersize=7, label=name, color=style.colour(NAMES, name)
        )
        for name in shown
    ]
    shapes = [
        style.handle(
            linestyle="",
            marker=style.marker(calibrators, name),
            color=style.GREY,
            label=style.calibrator_label(name),
        )
        for name in calibrators
    ]
    style.legend_beside(figure, {"score": dots, "calibrator": shapes})
    return figure


def _points(ax: Axes, rows: pd.DataFrame, calibrators: list[str]) -> None:
    for _, row in rows.iterrows():
        look: style.Look = {
            "color": style.colour(NAMES, row["conformal"]),
            "marker": style.marker(calibrators, row["calibrator"]),
        }
        ax.plot(
            row["set_size_mean"],
            100 * row["coverage_mean"],
            markersize=6.5,
            alpha=0.85,
            linestyle="",
            zorder=2,
            **look,
        )
