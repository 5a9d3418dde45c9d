"""Reliability diagrams of arrays, in any axes or side by side."""

from collections.abc import Mapping

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics import check_probabilities, ece
from calgrid.metrics.binning import BinSums, bin_sums
from calgrid.report import text
from calgrid.report.figures.reliability import curve, curve_and_histogram, handles
from calgrid.report.plotting import points, style

#: probabilities (N, K), labels (N,) and lines under the name of a diagram
Part = tuple[NDArray[np.float64], NDArray[np.int32], str]


def plot_reliability(
    probabilities: ArrayLike, labels: ArrayLike, ax: Axes | None = None, *, n_bins: int = 15
) -> Axes:
    """Draw a reliability diagram: accuracy of each bin, and its gap to the mean confidence.

    Grey are intervals of the accuracy over samples. The numbers are those of
    :func:`calgrid.report.run.reliability`.

    Parameters
    ----------
    probabilities : (N, K). labels : integers (N,).
    ax : axes to draw into; by default those of a new figure of pyplot.
    n_bins : equal-width bins of the largest probability.

    Raises
    ------
    DataError, ConfigError : as in :func:`calgrid.metrics.ece`.
    """
    sums = bin_sums(check_probabilities(probabilities, labels), n_bins)
    with mpl.rc_context(style.RC):
        if ax is None:
            _, ax = plt.subplots(figsize=(style.COLUMN, 3.2), layout="constrained")
        curve(ax, sums)
        ax.set(xlabel="Confidence (%)", ylabel="Accuracy (%)")
        ax.set_title(f"ECE {text.format_with_unit('ece', ece(probabilities, labels, n_bins))}")
        ax.legend(handles=handles(several=False), loc="upper left", fontsize=8)
    return ax


def draw_reliability(parts: Mapping[str, Part], n_bins: int = 15) -> Figure:
    """Draw diagrams with histograms by their names, two on the width of a column of a paper."""
    return draw_bins(
        {
            name: (bin_sums(check_probabilities(probabilities, labels), n_bins), line)
            for name, (probabilities, labels, line) in parts.items()
        }
    )


@mpl.rc_context(style.RC)
def draw_bins(parts: Mapping[str, tuple[BinSums, str]]) -> Figure:
    """Draw diagrams of sums of bins, each with a line under its name."""
    figure, pairs = points.stacked(len(parts), style.COLUMN / 2, 2.75, 3.2, style.COLUMN)
    for place, ((upper, lower), (name, (sums, line))) in enumerate(
        zip(pairs, parts.items(), strict=True)
    ):
        curve_and_histogram(upper, lower, sums, first=place % points.COLUMNS == 0)
        points.title(upper, f"{name}\n{line}".replace(" [", "\n["))
    return style.finished(figure, handles(several=False), "Confidence (%)", columns=3)
