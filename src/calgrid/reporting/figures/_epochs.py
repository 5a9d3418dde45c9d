"""What figures over epochs share: curves with bands over seeds, and marks where the learning rate drops."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from calgrid.reporting.figures import _style
from calgrid.reporting.study import Group, StudyData

#: a rate that falls below this share of a constant one has dropped
DROP = 0.9
#: bands of more methods than this would cover each other
BANDS = 8


def seeds_and_drops(data: StudyData, group: Group) -> str:
    """Say for a caption what lines, bands and dotted marks are."""
    seeds = {run["key"]["seed"] for run in data.runs(group)}
    spread = f"means over {len(seeds)} seeds, bands (of up to {BANDS} methods) from the lowest to the highest"
    spread = spread if len(seeds) > 1 else "one seed"
    return f"{spread}. Dotted lines: the learning rate drops"


def drops(history: pd.DataFrame) -> list[int]:
    """Epochs before which a constant learning rate fell: steps, but no cosine and no warm-up."""
    by_epoch = history.groupby("epoch")["learning_rate"].first()
    rate = by_epoch.to_numpy()
    fell = rate[1:] < DROP * rate[:-1]
    constant = np.concatenate([[True], rate[1:-1] == rate[:-2]]) if len(rate) > 1 else fell
    return [int(epoch) for epoch in by_epoch.index[1:][fell & constant]]


def curve(ax: Axes, history: pd.DataFrame, column: str, factor: float, methods: Sequence[str], method: str) -> None:
    """Draw the mean over seeds of a column times ``factor`` by epoch, and a band from the lowest to the highest.

    With more than ``BANDS`` methods there are lines alone.
    """
    by_epoch = history.groupby("epoch")[column].agg(["mean", "min", "max"]) * factor
    shade = _style.colour(methods, method)
    # a single epoch is a point, not a line
    dot = "o" if len(by_epoch) == 1 else None
    style = {"color": shade, "linestyle": _style.line(methods, method), "linewidth": 1.3, "marker": dot}
    ax.plot(by_epoch.index, by_epoch["mean"], **style)
    if len(methods) <= BANDS:
        ax.fill_between(by_epoch.index, by_epoch["min"], by_epoch["max"], color=shade, alpha=0.12, linewidth=0)


def finish(figure: Figure, histories: Mapping[str, pd.DataFrame], methods: Sequence[str]) -> None:
    """Mark the drops of the learning rate in all axes, name the epochs below the last one, and add the legend."""
    epochs = sorted({epoch for history in histories.values() for epoch in drops(history)})
    for ax in figure.axes:
        for epoch in epochs:
            ax.axvline(epoch, color=_style.GREY, linestyle=":", linewidth=1)
    figure.axes[-1].set_xlabel("Epoch")
    figure.axes[-1].xaxis.set_major_locator(MaxNLocator(integer=True))
    handles = _style.line_handles(methods, methods)
    if epochs:
        handles.append(Line2D([], [], color=_style.GREY, linestyle=":", label="learning rate drops"))
    figure.legend(handles=handles, loc="outside right upper", title="method", alignment="left")
