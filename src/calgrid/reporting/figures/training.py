"""Training curves: accuracy and NLL on val, and the training loss, by epoch."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.reporting.figures import _epochs, _style
from calgrid.reporting.histories import histories
from calgrid.reporting.study import Group, StudyData

#: column of the history -> label, factor
CURVES = {
    "val_accuracy": ("Accuracy on val (%)", 100),
    "val_nll": ("NLL on val (nats)", 1),
    "train_loss": ("Training loss", 1),
}
#: quantiles of all values beyond which a curve may leave the frame, as it does in the first epochs
EDGES = (0.04, 0.99)
LOG_FACTOR = 15


def caption(data: StudyData, group: Group) -> str:
    """Say what the curves show."""
    return (
        f"Training on {data.label(group, checkpoint=False)}: accuracy and NLL on val, and the training loss, by epoch; "
        f"{_epochs.seeds_and_drops(data, group)}. Training losses of different methods are different "
        "functions: compare their course, not their height. Second stages count their own "
        "epochs. The first epochs may lie outside the frame."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one line a method over its epochs."""
    tables = histories(data, group)
    if not tables:
        return None
    methods = [name for name in data.methods if name in tables]
    figure = _style.new_figure(_style.WIDTH, 7.0)
    axes = figure.subplots(len(CURVES), 1, sharex=True)
    for ax, (column, (label, factor)) in zip(axes, CURVES.items(), strict=True):
        for method in methods:
            _epochs.curve(ax, tables[method], column, factor, methods, method)
        ax.set_ylabel(label)
        _limits(ax, column, [tables[method][column].to_numpy() * factor for method in methods])
    _epochs.finish(figure, tables, methods)
    return figure


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
