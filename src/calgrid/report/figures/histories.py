"""Measurements during training by epoch: training curves, and figures of papers of this shape."""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.selections import histories
from calgrid.report.study import Group, StudyData, among

#: a learning rate below this share of the previous constant one has dropped
DROP = 0.9
#: figures with more methods have no bands, which would cover each other
BANDS = 8
#: quantiles of all values that set the limits of an axis; the first epochs may lie outside
EDGES = (0.04, 0.99)
LOG_FACTOR = 15


class Curve(NamedTuple):
    """A panel: label of its axis, factor of the values, limits of the axis (None: automatic)."""

    label: str
    factor: float = 100
    low: float | None = 0
    high: float | None = 103


class Histories(NamedTuple):
    """A figure of histories.

    Attributes
    ----------
    curves : column of the history -> panel. needed : column that a run must have. height : of the
        figure, in inches.
    words : the caption, a format string with ``place`` and ``seeds`` (number of seeds, meaning of
        bands).
    first_epochs : whether the axes must show the first epochs.
    align : whether labels of several lines are aligned over the panels.
    """

    curves: Mapping[str, Curve]
    needed: str
    height: float
    words: str
    first_epochs: bool = True
    align: bool = False

    def collect(self, data: StudyData, group: Group) -> pd.DataFrame:
        """Histories of the runs with the needed column: method, seed, epoch, learning rate and the
        curves.
        """
        rows = histories(data, group, self.needed)
        shown = among(self.curves, rows.columns[rows.notna().any()])
        return rows[["method", "seed", "epoch", "learning_rate", *shown]] if len(rows) else rows

    def caption(self, frame: FigureData) -> str:
        keys = frame.study.keys_of(frame.group)
        seeds = keys["seed"].nunique()
        spread = f"means over {seeds} seeds" if seeds > 1 else "one network each"
        if seeds > 1 and keys["method"].nunique() <= BANDS:
            spread += "; bands: range over seeds"
        return self.words.format(place=frame.setting, seeds=spread)

    def draw(self, frame: FigureData) -> Figure:
        """Draw one panel per measured curve and one line per method: means over seeds, bands from
        the lowest to the highest.
        """
        methods = frame.methods()
        curves = among(self.curves, frame.rows)
        height = self.height * len(curves) / len(self.curves)
        height = max(height, 0.19 * len(methods) + 0.8)
        figure, axes = style.subplots(frame.width, height, len(curves), sharex=True, squeeze=False)
        for ax, column in zip(axes[:, 0], curves, strict=True):
            shown = self.curves[column]
            ax.set_ylabel(shown.label)
            for method in methods:
                history = frame.rows[frame.rows["method"] == method]
                # a single epoch is a point, not a line
                marker = "o" if history["epoch"].nunique() == 1 else None
                look = {
                    **style.line_look(frame.study.methods, method),
                    "linewidth": 1.3,
                    "marker": marker,
                }
                band = len(methods) <= BANDS
                lines.course(ax, history, "epoch", column, shown.factor, look, band)
            if self.first_epochs:
                ax.set_ylim(shown.low, ax.get_ylim()[1] if shown.high is None else shown.high)
            else:
                _training_limits(ax, column, frame.rows[column].to_numpy(float) * shown.factor)
        if self.align:
            figure.align_ylabels()
        _finish(figure, frame)
        return figure


TRAINING = Histories(
    {
        "val_accuracy": Curve("Accuracy on val (%)"),
        "val_nll": Curve("NLL on val (nats)", 1),
        "val_refinement": Curve("its refinement (nats)", 1),
        "val_calibration": Curve("its calibration (nats)", 1),
        "train_loss": Curve("Training loss", 1),
    },
    "epoch",
    10.5,
    "Training on {place}, by epoch; {seeds}. Accuracy and NLL on val, the part of this NLL that "
    "remains after temperature scaling (refinement) and the other one (calibration), and the "
    "training loss. "
    "Training losses of different methods are different functions; compare their shapes, not "
    "their values. Epochs of second stages are counted from 1. The first epochs may lie outside "
    "the axes.",
    first_epochs=False,
)


def drops(history: pd.DataFrame) -> list[int]:
    """First epochs after a step of the learning rate; cosine and warm-up have no steps."""
    by_epoch = history.groupby("epoch")["learning_rate"].first()
    rate = by_epoch.to_numpy()
    fell = rate[1:] < DROP * rate[:-1]
    constant = np.concatenate([[True], rate[1:-1] == rate[:-2]]) if len(rate) > 1 else fell
    return list(by_epoch.index[1:][fell & constant].astype(int))


def _finish(figure: Figure, frame: FigureData) -> None:
    """Mark the drops of the learning rate in all axes, label the horizontal axis, and add the
    legend.
    """
    epochs = {epoch for _, history in frame.rows.groupby("method") for epoch in drops(history)}
    for ax in figure.axes:
        for epoch in epochs:
            ax.axvline(epoch, color=style.GREY, linestyle=":", linewidth=1)
    figure.axes[-1].set_xlabel("Epoch")
    figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = style.line_handles(frame.study.methods, frame.methods())
    if epochs:
        handles.append(style.handle(color=style.GREY, linestyle=":", label="rate drops"))
    style.legend_beside(figure, {"method": handles})


def _training_limits(ax: Axes, column: str, values: np.ndarray) -> None:
    """Set limits that may cut off the first epochs."""
    values = values[np.isfinite(values)]
    if len(values) == 0:
        return
    low, high = np.quantile(values, EDGES)
    room = 0.05 * (values.max() - low)
    if column == "val_accuracy":
        ax.set_ylim(max(0.0, low - room), min(100.0, values.max() + room))
    elif not style.log_if_wide(ax, values, LOG_FACTOR, 1.2) and values.min() >= 0 and high > 0:
        ax.set_ylim(0, 1.05 * high)
