"""Accuracy against ECE: what a method or calibrator pays for its calibration."""

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from calgrid.reporting import captions, text
from calgrid.reporting.figures import _style
from calgrid.reporting.study import Group, StudyData, keeps_accuracy

#: errors that differ by more than this factor are shown on a logarithmic axis
LOG_FACTOR = 3


def caption(data: StudyData, group: Group) -> str:
    """Say what the scatter shows."""
    rows = data.test(group)
    bars = " Bars are one standard deviation over seeds to both sides." if rows["n_seeds"].max() > 1 else ""
    return (
        f"Accuracy against ECE on {data.label(group)}, clean test split ({data.test_samples(group):,} images), "
        f"{captions.seeds(rows)}: one colour a method, one marker a calibrator; down and to the right is better.{bars} "
        "Where some lose more than 1 point of accuracy, the others are shown again at a larger scale. NLL and Brier "
        "score, which rank the methods, are in the other figures."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one marker for each method and calibrator; beside all, those that keep accuracy."""
    rows = data.test(group)
    if rows.empty:
        return None
    methods = [name for name in data.methods if (rows["method"] == name).any()]
    calibrators = [name for name in data.calibrators if (rows["calibrator"] == name).any()]
    near = rows[keeps_accuracy(rows)]
    panels = {"all": rows} if len(near) == len(rows) else {"all": rows, "within 1 point of the best accuracy": near}
    figure = _style.new_figure(_style.WIDTH, max(4.2, 0.2 * (len(methods) + len(calibrators)) + 1.2))
    axes = figure.subplots(1, len(panels), squeeze=False, gridspec_kw={"width_ratios": [2, 3][: len(panels)]})[0]
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
        x, y = (_style.scaled(metric, row[f"{metric}_mean"]) for metric in ("accuracy", "ece"))
        dx, dy = (np.nan_to_num(_style.scaled(metric, row[f"{metric}_std"])) for metric in ("accuracy", "ece"))
        look = _look(methods, row["method"])
        ax.errorbar(x, y, dy, dx, color=look["markeredgecolor"], linewidth=0.8, alpha=0.35, zorder=1)
        ax.plot(x, y, _style.marker(calibrators, row["calibrator"]), markersize=6.5, zorder=2, alpha=0.85, **look)
    errors = _style.scaled("ece", rows["ece_mean"].to_numpy(float))
    if _style.spans(errors, LOG_FACTOR):
        _style.log_axis(ax, "y", errors.min() / 1.6, errors.max() * 1.6)
    else:
        ax.set_ylim(0, errors.max() * 1.25)


def _look(methods: list[str], name: str) -> dict[str, Any]:
    """Colour of a method: filled in the first round of colours, hollow in the second."""
    shade = _style.colour(methods, name)
    filled = methods.index(name) < len(_style.PALETTE)
    return {"color": shade if filled else "white", "markeredgecolor": shade, "markeredgewidth": 1.2}


def _legends(figure: Figure, methods: list[str], calibrators: list[str]) -> None:
    dots = [
        Line2D([], [], linestyle="", marker="o", markersize=7, label=name, **_look(methods, name)) for name in methods
    ]
    shapes = [
        Line2D([], [], linestyle="", marker=_style.marker(calibrators, name), color=_style.GREY, label=name)
        for name in calibrators
    ]
    figure.legend(handles=dots, title="method", loc="outside right upper", alignment="left")
    figure.legend(handles=shapes, title="calibrator", loc="outside right lower", alignment="left")
