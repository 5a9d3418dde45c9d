"""Accuracy against ECE of all methods and calibrators."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calgrid.reporting import captions, text
from calgrid.reporting.figure import FigureData
from calgrid.reporting.plotting import style
from calgrid.reporting.study import Group, StudyData, keeps_accuracy

#: errors that differ by more than this factor are shown on a logarithmic axis
LOG_FACTOR = 3


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of every method and calibrator on the clean test split."""
    return data.test(group)


def caption(frame: FigureData) -> str:
    rows = frame.rows
    bars = " Bars: ± one standard deviation over seeds." if rows["n_seeds"].max() > 1 else ""
    return (
        f"Accuracy against ECE on {frame.label}, clean test split ({frame.images}), "
        f"{captions.seeds(rows)}: one colour per method, one marker per calibrator; the lower "
        f"right is best.{bars} If some lose more than 1 point of accuracy, the others are shown "
        "again at a larger scale. NLL and Brier score, which rank the methods, are in the other "
        "figures."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one marker per method and calibrator; a second panel has those that keep accuracy."""
    rows, methods, calibrators = frame.rows, frame.methods(), frame.calibrators()
    near = rows[keeps_accuracy(rows)]
    panels = (
        {"all": rows}
        if len(near) == len(rows)
        else {"all": rows, "within 1 point of the best accuracy": near}
    )
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
    _legends(figure, methods, calibrators)
    return figure


def _points(ax: Axes, rows: pd.DataFrame, methods: list[str], calibrators: list[str]) -> None:
    for _, row in rows.iterrows():
        x, y = (style.scaled(metric, row[f"{metric}_mean"]) for metric in ("accuracy", "ece"))
        dx, dy = (
            np.nan_to_num(style.scaled(metric, row[f"{metric}_std"]))
            for metric in ("accuracy", "ece")
        )
        look = _look(methods, row["method"])
        ax.errorbar(
            x, y, dy, dx, color=look["markeredgecolor"], linewidth=0.8, alpha=0.35, zorder=1
        )
        ax.plot(
            x,
            y,
            style.marker(calibrators, row["calibrator"]),
            markersize=6.5,
            zorder=2,
            alpha=0.85,
            **look,
        )
    errors = style.scaled("ece", rows["ece_mean"].to_numpy(float))
    if style.spans(errors, LOG_FACTOR):
        style.log_axis(ax, "y", errors.min() / 1.6, errors.max() * 1.6)
    else:
        ax.set_ylim(0, errors.max() * 1.25)


def _look(methods: list[str], name: str) -> dict[str, Any]:
    """Colour of a method: filled in the first round of colours, hollow in the second."""
    shade = style.colour(methods, name)
    filled = methods.index(name) < len(style.PALETTE)
    return {"color": shade if filled else "white", "markeredgecolor": shade, "markeredgewidth": 1.2}


def _legends(figure: Figure, methods: list[str], calibrators: list[str]) -> None:
    dots = [
        style.handle(linestyle="", marker="o", markersize=7, label=name, **_look(methods, name))
        for name in methods
    ]
    shapes = [
        style.handle(
            linestyle="", marker=style.marker(calibrators, name), color=style.GREY, label=name
        )
        for name in calibrators
    ]
    style.legend_beside(figure, {"method": dots, "calibrator": shapes})
