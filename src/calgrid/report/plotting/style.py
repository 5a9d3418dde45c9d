"""Style of all figures: sizes, fonts, and a palette for colour-blind readers."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import matplotlib as mpl
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter
from numpy.typing import ArrayLike

from calgrid.report import text
from calgrid.report.study import UNCALIBRATED

#: keyword arguments of an artist of matplotlib
Look = dict[str, Any]
Colour = str
#: inches: a page of a paper, and one of its two columns (178 and 85 mm); text has 8 points or more
WIDTH, COLUMN = 7.0, 3.35
DPI = 150
#: widths in a legend, about: symbol with its spaces, and a letter
ENTRY, LETTER = 0.5, 0.066
BESIDE: tuple[Literal["outside right upper", "outside right lower"], ...] = (
    "outside right upper",
    "outside right lower",
)
#: right end of an axis if all values are 0
SMALLEST_AXIS = 1e-6
#: colours that colour-blind readers tell apart; in grey, markers and lines differ
PALETTE = (
    *("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9"),
    *("#8c510a", "#000000", "#e69f00", "#5e3c99", "#999933", "#882255"),
)
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">")
_LINES = ("-", "--", ":", "-.")
GREY = "0.35"
#: mark of the ECE null
NULL_TICK: Look = {"color": GREY, "marker": "|", "linestyle": "", "markeredgewidth": 1.6}
RC: dict[Any, Any] = {
    **sns.axes_style("ticks"),
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "legend.frameon": False,
    "axes.grid": True,
    "grid.color": "0.9",
    "axes.axisbelow": True,
    "axes.edgecolor": "0.4",
    "figure.dpi": DPI,
    "svg.hashsalt": "calgrid",
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}


def new_figure(width: float, height: float) -> Figure:
    """Empty figure, in inches, with constrained layout."""
    with mpl.rc_context(RC):
        return Figure(figsize=(width, height), dpi=DPI, layout="constrained")


def subplots(
    width: float, height: float, rows: int = 1, columns: int = 1, **options: Any
) -> tuple[Figure, Any]:
    """:func:`new_figure` and its axes, as of ``Figure.subplots`` with its ``options``."""
    figure = new_figure(width, height)
    return figure, figure.subplots(rows, columns, **options)


def finished(
    figure: Figure,
    handles: Sequence[Artist],
    x: str = "",
    y: str = "",
    columns: int = 100,
    **look: Any,
) -> Figure:
    """Add a legend above the panels, in at most so many columns, fewer where they do not fit, and
    labels of the axes; return the figure.

    ``look`` has further options of the legend.
    """
    most = _fitting(figure, handles, columns)
    figure.legend(handles=list(handles), loc="outside upper center", ncols=most, **look)
    for write, label in ((figure.supxlabel, x), (figure.supylabel, y)):
        if label:
            write(label, fontsize=9)
    return figure


def legend_beside(figure: Figure, handles: Mapping[str, Sequence[Artist]]) -> None:
    """Add one or two legends, title -> entries, at the right; in a column of a paper one below."""
    if figure.get_figwidth() > COLUMN:
        for place, (title, entries) in zip(BESIDE, handles.items(), strict=False):
            figure.legend(handles=entries, title=title, loc=place, alignment="left")
        return
    entries = list(itertools.chain(*handles.values()))
    figure.legend(handles=entries, loc="outside lower center", ncols=_fitting(figure, entries, 4))


def _fitting(figure: Figure, handles: Sequence[Artist], columns: int) -> int:
    """Columns of a legend, at most ``columns``, whose labels fit into the width of a figure."""
    widths = [ENTRY + LETTER * len(str(entry.get_label())) for entry in handles]
    most = min(columns, len(handles))
    if len(handles) <= columns and sum(widths) < figure.get_figwidth():
        return most
    return max(1, min(most, int(figure.get_figwidth() / max(widths))))


def colour(names: Sequence[str], name: str) -> Colour:
    """Colour of a name by its place in ``names``, all names of the study, so that all figures use
    the same; repeats after 11, where :func:`line` and :func:`marker` differ.
    """
    return PALETTE[names.index(name) % len(PALETTE)]


def line(names: Sequence[str], name: str) -> str:
    """Style of the line of a name by its place in ``names``."""
    return _LINES[names.index(name) % len(_LINES)]


def marker(names: Sequence[str], name: str) -> str:
    """Marker of a name by its place in ``names``."""
    return _MARKERS[names.index(name) % len(_MARKERS)]


def line_look(names: Sequence[str], name: str) -> Look:
    """Colour and style of the line of a name."""
    return {"color": colour(names, name), "linestyle": line(names, name)}


def marker_look(names: Sequence[str], name: str) -> Look:
    """Colour and marker of a name."""
    return {"color": colour(names, name), "marker": marker(names, name)}


def statistic(rows: pd.DataFrame, metric: str, name: str = "mean") -> np.ndarray:
    """A statistic of a metric in wide rows, (M,), in the unit that is shown: percent for shares."""
    return text.shown(metric, rows[f"{metric}_{name}"])


def estimates(rows: pd.DataFrame, metric: str) -> tuple[np.ndarray, ...]:
    """Mean and both ends of the interval of wide rows, each (M,), in the unit that is shown."""
    ends = statistic(rows, metric, "ci_low"), statistic(rows, metric, "ci_high")
    return statistic(rows, metric), *ends


def dot(**look: Any) -> Look:
    """Look of a marker without a line, a dot unless ``look`` has another ``marker``."""
    return {"linestyle": "", "marker": "o", **look}


def handle(**look: Any) -> Line2D:
    """Legend entry for a line or a marker; ``look`` includes its ``label``."""
    return Line2D([], [], **look)


def handles(looks: Mapping[str, Look]) -> list[Line2D]:
    """Legend entries: label -> look."""
    return [handle(label=label, **look) for label, look in looks.items()]


def line_handles(names: Sequence[str], shown: Sequence[str] = ()) -> list[Line2D]:
    """Legend entries for coloured lines of ``shown`` names, or of all."""
    return handles({name: line_look(names, name) for name in shown or names})


def calibrator_label(name: str) -> str:
    """Name of a calibrator in a legend."""
    return f"{name} (uncalibrated)" if name == UNCALIBRATED else name


def null_handle(tick: Look = NULL_TICK) -> Line2D:
    """Legend entry for the marks of the ECE null."""
    return handle(label="ECE null (perfect calibration)", markersize=8, **tick)


def stripes(ax: Axes, names: Sequence[str]) -> None:
    """Shade every second row of a plot with named rows at y = 0, 1, ..., the first at the top."""
    for place in range(0, len(names), 2):
        ax.axhspan(place - 0.5, place + 0.5, color="0.965", zorder=0)
    ax.set_yticks(range(len(names)), names)
    ax.set_ylim(len(names) - 0.5, -0.5)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


def band(ax: Axes, x: Sequence[float], low: ArrayLike, high: ArrayLike, shade: Colour) -> None:
    """Shade the range between two lines over the same ``x``."""
    ax.fill_between(x, low, high, color=shade, alpha=0.12, linewidth=0)


def arrows(ax: Axes, y: np.ndarray, low: np.ndarray, high: np.ndarray, shade: Colour) -> None:
    """Mark intervals that continue outside the axes; ``y``, ``low`` and ``high`` are (M,), in units
    of the axes.
    """
    first, last = ax.get_xlim()
    for outside, edge, shape in ((low < first, first, "<"), (high > last, last, ">")):
        (ends,) = ax.plot(
            np.full(outside.sum(), edge),
            y[outside],
            shape,
            color=shade,
            ms=4,
            clip_on=False,
            zorder=5,
        )
        ends.set_in_layout(False)


def log_axis(ax: Axes, axis: str, first: float, last: float) -> None:
    """Make an axis logarithmic from ``first`` to ``last``, with few enough labels that they do not
    overlap.

    Labels are round numbers below a ratio of 3; multiples of powers of ten by 1, 2, 3 and 5 below
    15, by 1 and 3 below 100; else powers of ten.
    """
    getattr(ax, f"set_{axis}scale")("log")
    getattr(ax, f"set_{axis}lim")(first, last)
    where = getattr(ax, f"{axis}axis")
    where.set_minor_formatter(NullFormatter())
    if last < 100 * first:
        few = LogLocator(subs=(1, 2, 3, 5) if last < 15 * first else (1, 3))
        where.set_major_locator(MaxNLocator(5) if last < 3 * first else few)
        where.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))


def log_if_wide(ax: Axes, values: np.ndarray, factor: float, room: float) -> bool:
    """Whether :func:`spans` holds for ``values``; then the vertical axis becomes logarithmic, with
    room below and above them by the factor ``room``.
    """
    if wide := spans(values, factor):
        log_axis(ax, "y", values.min() / room, values.max() * room)
    return wide


def say_scales(figure: Figure) -> None:
    """Name the logarithmic scale in the labels of logarithmic axes."""
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            label = axis.get_label_text()
            is_shown = any(tick.label1.get_visible() for tick in axis.get_major_ticks())
            if axis.get_scale() == "log" and is_shown:
                axis.set_label_text(f"{label}, log scale" if label else "log scale")


def spans(values: np.ndarray, factor: float) -> bool:
    """Are values positive and their ratio above ``factor``, so that a linear axis would hide the
    small ones?
    """
    return bool(values.min() > 0 and values.max() > factor * values.min())
