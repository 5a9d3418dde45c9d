"""Accuracy against ECE of all methods and calibrators."""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData
from calgrid.statistics.pairs import keeps_accuracy

#: errors that differ by more than this factor are shown on a logarithmic axis
LOG_FACTOR = 3


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of every method and calibrator on the clean test split."""
    return data.test(group)


def caption(frame: FigureData) -> str:
    rows = frame.rows
    bars = " Bars: ± one standard deviation over seeds." if rows["n_seeds"].max() > 1 else ""
    if not keeps_accuracy(rows).all():
        bars += " Right: those within 1 point of the best accuracy, at a larger scale."
    return (
        f"Accuracy against ECE on {frame.label}, clean test split ({frame.images}), "
        f"{captions.seeds(rows)}. One colour per method, one marker per calibrator; the lower "
        f"right is best.{bars} NLL and Brier score, which rank the methods, are in the other "
        "figures."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one marker per method and calibrator; a second panel has those that keep accuracy."""
    rows, methods, calibrators = frame.rows, frame.methods(), frame.calibrators()
    near = rows[keeps_accuracy(rows)]
    panels = {"all": rows}
    if len(near) < len(rows):
        panels["within 1 point of the best accuracy"] = near
    if frame.width > style.COLUMN:
        height = max(4.2, 0.2 * (len(methods) + len(calibrators)) + 1.2)
        figure = style.new_figure(frame.width, height)
        ratios = {"width_ratios": [2, 3][: len(panels)]}
        axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw=ratios)[0]
    else:
        figure = style.new_figure(frame.width, 2.6 * len(panels) + 1)
        axes = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    for ax, (title, part) in zip(axes, panels.items(), strict=True):
        _points(ax, part, methods, calibrators)
        ax.set_xlabel(text.in_unit("accuracy"))
        ax.xaxis.set_major_locator(MaxNLocator(5))
        if len(panels) > 1:
            ax.set_title(title)
    axes[0].set_ylabel(text.in_unit("ece"))
    dots, shapes = {}, {}
    for name in methods:
        dots[name] = style.dot(markersize=7, **_look(methods, name))
    for name in calibrators:
        shapes[name] = style.dot(color=style.GREY, marker=style.marker(calibrators, name))
    legends = {"method": style.handles(dots), "calibrator": style.handles(shapes)}
    style.legend_beside(figure, legends)
    return figure


def _points(ax: Axes, rows: pd.DataFrame, methods: list[str], calibrators: list[str]) -> None:
    names = rows[["method", "calibrator"]].to_numpy()
    accuracies, errors = style.statistic(rows, "accuracy"), style.statistic(rows, "ece")
    widths = np.nan_to_num(style.statistic(rows, "accuracy", "std"))
    heights = np.nan_to_num(style.statistic(rows, "ece", "std"))
    for (method, calibrator), x, y, dx, dy in zip(
        names, accuracies, errors, widths, heights, strict=True
    ):
        look = _look(methods, method)
        shade, shape = look["markeredgecolor"], style.marker(calibrators, calibrator)
        ax.errorbar(x, y, dy, dx, color=shade, linewidth=0.8, alpha=0.35, zorder=1)
        ax.plot(x, y, shape, markersize=6.5, zorder=2, alpha=0.85, **look)
    if not style.log_if_wide(ax, errors, LOG_FACTOR, 1.6):
        ax.set_ylim(0, errors.max() * 1.25)


def _look(methods: list[str], name: str) -> style.Look:
    """Colour of a method: filled in the first round of colours, hollow in the second."""
    shade = style.colour(methods, name)
    filled = methods.index(name) < len(style.PALETTE)
    return {"color": shade if filled else "white", "markeredgecolor": shade, "markeredgewidth": 1.2}
