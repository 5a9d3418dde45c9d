"""Shared parts of figures with many points: small multiples, a bounded number of points,
correlations over seeds.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.report import text
from calgrid.report.plotting import style

#: largest number of points of a panel
POINTS = 5000
#: largest number of panels side by side
COLUMNS = 4
#: least width of a sheet in inches, for its legend
LEAST = 4.2
#: right or wrong -> colour, label, area, opacity; wrong answers are few and drawn last
ANSWERS = {True: ("#0173b2", "correct", 7, 0.35), False: ("#d55e00", "wrong", 14, 0.9)}


def _sheet(count: int, width: float, height: float, least: float) -> tuple[Figure, int, int]:
    """Figure for ``count`` cells of ``width`` x ``height`` inches, at least ``least`` wide, with
    its numbers of lines and columns.
    """
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    return style.new_figure(max(least, width * columns), 0.9 + height * lines), lines, columns


def panels(
    parts: Mapping[str, pd.DataFrame], height: float = 2.1
) -> tuple[Figure, list[tuple[Axes, str, pd.DataFrame]]]:
    """Make a figure with a panel for each part, with its name and rows; the panels share their
    axes, four are on the width of a page, and each is ``height`` inches high.
    """
    count = len(parts)
    figure, lines, columns = _sheet(count, style.WIDTH / COLUMNS, height, LEAST)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.remove()
    for place, ax in enumerate(axes[:count]):
        ax.tick_params(labelbottom=place + columns >= count)
    return figure, [(ax, *part) for ax, part in zip(axes, parts.items(), strict=False)]


def stacked(
    count: int, width: float, height: float, ratio: float, least: float = LEAST
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """Make a figure of ``count`` pairs of axes, the upper ``ratio`` times as high as the lower; all
    lower ones share their vertical axis.

    ``width`` and ``height`` are those of a pair, in inches; the figure is at least ``least`` wide.
    """
    figure, lines, columns = _sheet(count, width, height, least)
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=[ratio, 1] * lines)
    pairs: list[tuple[Axes, Axes]] = []
    for place in range(count):
        line, column = divmod(place, columns)
        first = pairs[0][1] if pairs else None
        lower = figure.add_subplot(grid[2 * line + 1, column], sharey=first)
        pairs.append((figure.add_subplot(grid[2 * line, column], sharex=lower), lower))
    return figure, pairs


def title(ax: Axes, *lines: str) -> None:
    """Write lines of small text above a panel."""
    ax.set_title("\n".join(lines), fontsize=8, linespacing=1.3)


def scatter_answers(ax: Axes, table: pd.DataFrame, x: str, y: str, factor: float = 1) -> None:
    """Draw ``factor`` times column ``y`` against ``x``, in different colours for right and wrong
    answers.
    """
    for correct, (shade, _, area, opacity) in ANSWERS.items():
        part = table[table["correct"] == correct]
        look: style.Look = {"color": shade, "alpha": opacity, "linewidths": 0, "rasterized": True}
        ax.scatter(part[x], factor * part[y], area, **look)


def answer_handles() -> list[Line2D]:
    """Legend entries for right and wrong answers."""
    looks = {label: style.dot(markersize=5, color=shade) for shade, label, *_ in ANSWERS.values()}
    return style.handles(looks)


def spread_out(table: pd.DataFrame, points: int = POINTS) -> pd.DataFrame:
    """At most ``points`` rows, evenly chosen."""
    return table.iloc[np.linspace(0, len(table) - 1, min(points, len(table))).round().astype(int)]


def correlation(
    table: pd.DataFrame, x: str, y: str, kind: Literal["pearson", "spearman"] = "spearman"
) -> str:
    """Correlation of two columns, mean over seeds, with its standard deviation if there are
    several.
    """
    runs = table.groupby("seed")
    each = pd.Series([run[x].corr(run[y], method=kind) for _, run in runs], dtype=float)
    spread = f" ± {text.decimal(each.std(), 2)}" if each.count() > 1 else ""
    return text.decimal(each.mean(), 2) + spread
