"""What figures with many points share: small multiples, a bounded number of points, correlations over seeds."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.reporting import text
from calgrid.reporting.plotting import style

#: points of a panel; of more samples every so many-th is drawn
POINTS = 5000
COLUMNS = 4


def panels(count: int, height: float = 2.1, width: float = 2.0) -> tuple[Figure, list[Axes]]:
    """Make a figure of ``count`` panels of one scale, at most four beside each other, inches a panel."""
    columns = min(COLUMNS, count)
    lines = -(-count // columns)
    figure = style.new_figure(max(4.2, width * columns), 0.9 + height * lines)
    axes = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False).ravel()
    for ax in axes[count:]:
        ax.remove()
    for place, ax in enumerate(axes[:count]):
        ax.tick_params(labelbottom=place + columns >= count)
    return figure, list(axes[:count])


def stacked(
    count: int, width: float, height: float, ratio: float, columns: int = COLUMNS
) -> tuple[Figure, list[tuple[Axes, Axes]]]:
    """Make a figure of ``count`` pairs of axes, the upper ``ratio`` times as high as the lower; inches a pair."""
    columns = min(columns, count)
    lines = -(-count // columns)
    figure = style.new_figure(max(4.2, width * columns), 0.9 + height * lines)
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=[ratio, 1] * lines)
    pairs = []
    for place in range(count):
        line, column = divmod(place, columns)
        lower = figure.add_subplot(grid[2 * line + 1, column])
        pairs.append((figure.add_subplot(grid[2 * line, column], sharex=lower), lower))
    return figure, pairs


def spread_out(table: pd.DataFrame, points: int = POINTS) -> pd.DataFrame:
    """At most ``points`` rows, evenly chosen."""
    return table.iloc[np.linspace(0, len(table) - 1, min(points, len(table))).round().astype(int)]


def correlation(
    tables: Sequence[pd.DataFrame], x: str, y: str, kind: Literal["pearson", "spearman"] = "spearman"
) -> str:
    """Correlation of two columns, mean over the runs, with its deviation where there are several."""
    each = pd.Series([_rank(table[x], kind).corr(_rank(table[y], kind)) for table in tables])
    spread = f" ± {text.decimal(each.std(), 2)}" if each.count() > 1 else ""
    return text.decimal(each.mean(), 2) + spread


def _rank(values: pd.Series, kind: str) -> pd.Series:
    return values.rank() if kind == "spearman" else values
