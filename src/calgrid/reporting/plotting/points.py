"""What figures with many points share: small multiples, a bounded number of points, correlations over seeds."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.plotting import style

#: points of a panel; of more samples every so many-th is drawn
POINTS = 5000
COLUMNS = 4
#: right or wrong -> colour, label, area, opacity; the wrong ones are few and drawn last
ANSWERS = {True: ("#0173b2", "correct", 7, 0.35), False: ("#d55e00", "wrong", 14, 0.9)}


def _sheet(count: int, width: float, height: float) -> tuple[Figure, int, int]:
    """Make a figure for ``count`` cells (size in inches), at most four per row; also return its rows and columns."""
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    return style.new_figure(max(4.2, width * columns), 0.9 + height * lines), lines, columns


def panels(count: int, height: float = 2.1) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels of one scale, two inches wide and ``height`` high."""
    figure, lines, columns = _sheet(count, 2.0, height)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.remove()
    for place, ax in enumerate(axes[:count]):
        ax.tick_params(labelbottom=place + columns >= count)
    return figure, list(axes[:count])


def stacked(count: int, width: float, height: float, ratio: float) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """Make a figure of ``count`` pairs of axes, the upper ``ratio`` times as high as the lower; inches a pair."""
    figure, lines, columns = _sheet(count, width, height)
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=[ratio, 1] * lines)
    pairs = []
    for place in range(count):
        line, column = divmod(place, columns)
        lower = figure.add_subplot(grid[2 * line + 1, column])
        pairs.append((figure.add_subplot(grid[2 * line, column], sharex=lower), lower))
    return figure, pairs


def finished(figure: Figure, handles: Sequence[Artist], x: str, y: str, columns: int | None = None) -> Figure:
    """Return a figure of panels with axis labels and a legend above, in one line unless ``columns`` is given."""
    figure.legend(handles=list(handles), loc="outside upper center", ncols=columns or len(handles))
    figure.supxlabel(x, fontsize=9)
    figure.supylabel(y, fontsize=9)
    return figure


def scatter_answers(ax: Axes, table: pd.DataFrame, x: str, y: str, factor: float = 1) -> None:
    """Draw ``factor`` times column ``y`` against ``x``, right and wrong answers (``correct``) apart."""
    for correct, (shade, _, area, opacity) in ANSWERS.items():
        part = table[table["correct"] == correct]
        ax.scatter(part[x], factor * part[y], area, color=shade, alpha=opacity, linewidths=0, rasterized=True)


def answer_handles() -> list[Line2D]:
    """Legend entries for right and wrong answers."""
    looks = {label: shade for shade, label, *_ in ANSWERS.values()}
    return [
        style.handle(linestyle="", marker="o", markersize=5, color=shade, label=label) for label, shade in looks.items()
    ]


def spread_out(table: pd.DataFrame, points: int = POINTS) -> pd.DataFrame:
    """At most ``points`` rows, evenly chosen."""
    return table.iloc[np.linspace(0, len(table) - 1, min(points, len(table))).round().astype(int)]


def correlation(
    tables: Sequence[pd.DataFrame], x: str, y: str, kind: Literal["pearson", "spearman"] = "spearman"
) -> str:
    """Correlation of two columns, mean over the runs, with the deviation for several runs."""
    each = pd.Series([table[x].corr(table[y], method=kind) for table in tables])
    spread = f" ± {text.decimal(each.std(), 2)}" if each.count() > 1 else ""
    return text.decimal(each.mean(), 2) + spread
