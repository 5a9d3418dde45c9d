"""Accuracy, MCE and AECE, averaged over data sets and backbones (MaC-Cal, Figure 4)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.settings import settings
from calgrid.report.study import Group, StudyData

METRICS = ("accuracy", "mce", "aece")
BAR = 0.62
COLOUR = "#7fa8cf"
#: margin at each end of the axis, as a share of the range of accuracies
ROOM = 0.06


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy means of the methods that all settings have or, without two of them, in the settings
    with all methods.
    """
    rows = settings(data, "method", METRICS)
    parts = []
    for metric in METRICS:
        table = rows[rows["metric"] == metric].pivot(index="setting", columns="name", values="mean")
        complete = table.dropna(axis="columns")
        if complete.shape[1] < 2:  # grids with different methods
            complete = table.dropna()
        if min(complete.shape) < 2:
            return pd.DataFrame()
        tidy = complete.melt(ignore_index=False, value_name="mean", var_name="method")
        parts.append(tidy.assign(metric=metric))
    return pd.concat(parts).reset_index()


def caption(frame: FigureData) -> str:
    accuracy = frame.rows[frame.rows["metric"] == "accuracy"]
    left = [method for method in frame.study.methods if method not in set(accuracy["method"])]
    out = f" Left out, because a setting lacks them: {text.listed(left)}." if left else ""
    return (
        f"Means over {accuracy['setting'].nunique()} settings (protocol, data set and backbone) of "
        "the uncalibrated networks, clean test split of each. Dots: the settings, each a mean "
        f"over its seeds. Methods in the order of the study.{out} Settings differ much more than "
        "methods, so do not read the dots as error bars; paired tests are in the tables. MCE is "
        "the gap of the worst bin, which may have few images; MCE and AECE of perfectly "
        "calibrated networks are above 0, too. NLL, Brier score and ECE with its null are in the "
        "other figures."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one line of bars per method."""
    methods = frame.methods()
    figure = style.new_figure(style.WIDTH, 0.24 * len(methods) + 1.2)
    for ax, metric in zip(figure.subplots(1, len(METRICS), sharey=True), METRICS, strict=True):
        style.stripes(ax, list(map(frame.study.marked, methods)))
        rows = frame.rows[frame.rows["metric"] == metric]
        rows = rows.assign(mean=text.shown(metric, rows["mean"]))
        _panel(ax, metric, rows.pivot(index="setting", columns="method", values="mean")[methods])
        ax.set_xlabel(text.in_unit(metric))
    looks = {
        "mean (bar or diamond)": style.dot(color=COLOUR, marker="D", markersize=6),
        "a setting": style.dot(color=style.GREY, markersize=2.5),
    }
    figure.legend(handles=style.handles(looks), loc="outside upper center", ncols=2)
    return figure


def _panel(ax: Axes, metric: str, values: pd.DataFrame) -> None:
    means, places = values.mean(), range(values.shape[1])
    for _, row in values.iterrows():
        ax.plot(row, places, "o", color=style.GREY, markersize=2.2, alpha=0.7, zorder=3)
    if metric == "accuracy":
        # bars of accuracy would have to start at 0, which hides the differences
        ax.plot(means, places, "D", color=COLOUR, markersize=6, zorder=2)
        span = max(values.max(axis=None) - values.min(axis=None), 1.0)
        ax.set_xlim(values.min(axis=None) - ROOM * span, values.max(axis=None) + ROOM * span)
    else:
        ax.barh(places, means, BAR, color=COLOUR)
        ax.set_xlim(left=0)
