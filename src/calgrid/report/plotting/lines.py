"""Lines of means over a numeric axis, with bands over seeds and marks of the ECE null."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from calgrid.report.plotting import style
from calgrid.report.study import wide

NULL = (
    "Ticks in the colour of a line: expected ECE of a perfectly calibrated network with the same "
    "confidences; an ECE at or below its tick is no evidence of miscalibration."
)
#: mark of the ECE null on a vertical axis
NULL_TICK: style.Look = {**style.NULL_TICK, "marker": "_"}
#: values with a larger ratio are shown on a logarithmic axis
LOG_FACTOR = 15
#: panels with more lines have no bands, which would cover each other
BANDS = 6
#: share of an axis that a label takes
ROOM = 0.13


def deviation(rows: pd.DataFrame) -> pd.Series:
    """Standard deviation over seeds of tidy rows of the summary; for one seed, over seeds of the
    calibrator.

    NaN for one seed of both.
    """
    return rows["std"].where(rows["n_seeds"] > 1, rows["std_fit"])


def means(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """Wide rows by ``keys`` of tidy rows, with :func:`deviation` in ``{metric}_std``."""
    return wide(rows.assign(std=deviation(rows)), keys)


def spread(rows: pd.DataFrame) -> str:
    """Meaning of lines and bands of :func:`means`, for captions."""
    seeds, fits = int(rows["n_seeds"].max()), int(rows["n_fits"].max())
    bands = f"bands (for up to {BANDS} lines): ± one standard deviation"
    if seeds > 1:
        return f"means over {seeds} seeds; {bands}"
    if fits > 1:
        return f"one network each; {bands} over {fits} seeds of the stochastic calibrators"
    return "one network each"


def line(
    ax: Axes, x: Sequence[float], rows: pd.DataFrame, metric: str, look: style.Look, count: int
) -> None:
    """Draw the mean of a metric at N values ``x``, its band, and for the ECE the marks of its null.

    Parameters
    ----------
    rows : N rows of :func:`means`.
    look : style of the line.
    count : number of lines of the panel; no bands if it is above ``BANDS``.
    """
    mean, std = style.statistic(rows, metric), style.statistic(rows, metric, "std")
    ax.plot(x, mean, markersize=3.5, linewidth=1.4, **look)
    if count <= BANDS:
        style.band(ax, x, mean - std, mean + std, look["color"])
    if metric == "ece":
        tick = {**NULL_TICK, "color": look["color"]}
        ax.plot(x, style.statistic(rows, "ece_null"), markersize=7, **tick)


def course(
    ax: Axes, rows: pd.DataFrame, x: str, y: str, factor: float, look: style.Look, band: bool
) -> None:
    """Draw the mean of ``factor`` times column ``y`` at each ``x``, and a band over its range."""
    by_x = rows.groupby(x)[y].agg(["mean", "min", "max"]) * factor
    ax.plot(by_x.index, by_x["mean"], **look)
    if band:
        style.band(ax, by_x.index, by_x["min"], by_x["max"], look["color"])


def numeric_axis(ax: Axes, values: Sequence[float]) -> None:
    """Put ticks at the values of the horizontal axis, logarithmic if their ratio is large."""
    ordered = np.array(sorted(set(values)))
    if style.spans(ordered, LOG_FACTOR - 1):
        ax.set_xscale("log")
    places = np.log(ordered) if ax.get_xscale() == "log" else ordered
    labels, free = [], -np.inf
    for value, place in zip(ordered, places, strict=True):
        # no label where it would overlap the previous one
        labels.append(f"{value:,g}" if place >= free else "")
        if labels[-1]:
            free = place + ROOM * (places[-1] - places[0])
    ax.set_xticks(ordered, labels)
    ax.set_xticks([], minor=True)
