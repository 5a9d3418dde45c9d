"""Training curves: accuracy and NLL on val, and the training loss, by epoch."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting.figures import _style
from calgrid.reporting.study import Group, StudyData
from calgrid.storage.tables import read_frame

#: column of the history -> label, factor
CURVES = {
    "val_accuracy": ("Accuracy on val (%)", 100),
    "val_nll": ("NLL on val (nats)", 1),
    "train_loss": ("Training loss", 1),
}
#: a rate that falls below this share of a constant one has dropped
DROP = 0.9
#: quantiles of all values beyond which a curve may leave the frame, as it does in the first epochs
EDGES = (0.04, 0.99)
LOG_FACTOR = 15


def caption(data: StudyData, group: Group) -> str:
    """Say what the curves show."""
    seeds = {run["key"]["seed"] for run in data.runs(group)}
    spread = f"means over {len(seeds)} seeds, bands from the lowest to the highest" if len(seeds) > 1 else "one seed"
    return (
        f"Training on {data.label(group, checkpoint=False)}: accuracy and NLL on val, and the training loss, by epoch; "
        f"{spread}. Dotted lines: the learning rate drops. Training losses of different methods are different "
        "functions: compare their course, not their height. Second stages count their own "
        "epochs. The first epochs may lie outside the frame."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one line a method over its epochs."""
    histories = _histories(data, group)
    if not histories:
        return None
    methods = [name for name in data.methods if name in histories]
    figure = _style.new_figure(_style.WIDTH, 7.0)
    axes = figure.subplots(len(CURVES), 1, sharex=True)
    drops = sorted({epoch for table in histories.values() for epoch in _drops(table)})
    for ax, (column, (label, factor)) in zip(axes, CURVES.items(), strict=True):
        for method in methods:
            _curve(ax, histories[method], column, factor, methods, method)
        for epoch in drops:
            ax.axvline(epoch, color=_style.GREY, linestyle=":", linewidth=1)
        ax.set_ylabel(label)
        _limits(ax, column, [histories[method][column].to_numpy() * factor for method in methods])
    axes[-1].set_xlabel("Epoch")
    handles = _style.line_handles(methods, methods)
    if drops:
        handles.append(Line2D([], [], color=_style.GREY, linestyle=":", label="learning rate drops"))
    figure.legend(handles=handles, loc="outside right upper", title="method", alignment="left")
    return figure


def _histories(data: StudyData, group: Group) -> dict[str, pd.DataFrame]:
    """Histories of all seeds by method; epochs count from 1."""
    tables: dict[str, list[pd.DataFrame]] = {}
    for run in data.runs(group):
        if not run["external"]:
            history = read_frame(Path(run["run"], "history.parquet"), "training history")
            named = history.assign(seed=run["key"]["seed"], epoch=history["epoch"] + 1)
            tables.setdefault(run["key"]["method"], []).append(named)
    return {method: pd.concat(parts) for method, parts in tables.items()}


def _drops(history: pd.DataFrame) -> Iterable[int]:
    """Epochs before which a constant learning rate fell: steps, but no cosine and no warm-up."""
    by_epoch = history.groupby("epoch")["learning_rate"].first()
    rate = by_epoch.to_numpy()
    fell = rate[1:] < DROP * rate[:-1]
    constant = np.concatenate([[True], rate[1:-1] == rate[:-2]]) if len(rate) > 1 else fell
    return (int(epoch) for epoch in by_epoch.index[1:][fell & constant])


def _curve(ax: Axes, history: pd.DataFrame, column: str, factor: float, methods: list[str], method: str) -> None:
    by_epoch = history.groupby("epoch")[column].agg(["mean", "min", "max"]) * factor
    shade = _style.colour(methods, method)
    # a single epoch is a point, not a line
    dot = "o" if len(by_epoch) == 1 else None
    style = {"color": shade, "linestyle": _style.line(methods, method), "linewidth": 1.3, "marker": dot}
    ax.plot(by_epoch.index, by_epoch["mean"], **style)
    ax.fill_between(by_epoch.index, by_epoch["min"], by_epoch["max"], color=shade, alpha=0.12, linewidth=0)


def _limits(ax: Axes, column: str, curves: list[np.ndarray]) -> None:
    """Limits for the course of the training, not for its first epochs."""
    values = np.concatenate(curves)
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return
    low, high = np.quantile(values, EDGES)
    room = 0.05 * (values.max() - low)
    if column == "val_accuracy":
        ax.set_ylim(max(0.0, low - room), min(100.0, values.max() + room))
    elif _style.spans(values, LOG_FACTOR):
        _style.log_axis(ax, "y", values.min() / 1.2, values.max() * 1.2)
    elif values.min() >= 0 and high > 0:
        ax.set_ylim(0, 1.05 * high)
