"""Reliability diagrams of the methods, before and after calibration, and of arrays."""

from collections.abc import Mapping
from typing import Any

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from calgrid.metrics import check_probabilities, ece
from calgrid.metrics.binning import BinSums, bin_sums
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.statistics.paired import wilson_interval
from calgrid.storage.schema import BINS

BAR, GAP = "#7fa8cf", "#d55e00"
#: interval of a bin over images
BAND: style.Look = {"color": "black", "alpha": 0.22, "linewidth": 0}
#: nominal coverage of the intervals of bins
LEVEL = 0.95
#: columns of the bins that are sums
COLUMNS = ["count", "confidence", "correct"]
#: name of a method in its panel
NAME: style.Look = {
    "xycoords": "axes fraction",
    "bbox": {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.5},
    "va": "top",
    "fontsize": 9,
    "fontweight": "bold",
    "zorder": 5,
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of the methods by rank, with the bins of each seed in ``sums``: arrays (S, M).

    Several methods are shown without calibration and with one calibrator, a single one with all.
    """
    bins = data.rows(BINS, group, n_bins=data.bins)
    several = bins["method"].nunique() > 1
    shown = data.few_calibrators() if several else list(bins["calibrator"].unique())
    rows = data.test(group, shown)
    if rows.empty:
        return rows
    of_diagram = bins.groupby(["method", "calibrator"])[["seed", *COLUMNS]]
    return rows.join(of_diagram.apply(_sums).rename("sums"), on=["method", "calibrator"])


def caption(frame: FigureData) -> str:
    seeds = max(len(sums.count) for sums in frame.rows["sums"])
    pooled = f"pooled over {text.count(seeds, 'seed')}" if seeds > 1 else "one network each"
    spread = "; whiskers run from the lowest to the highest seed" if seeds > 1 else ""
    return (
        f"Reliability before and after calibration on {frame.label}, clean test split "
        f"({frame.images}), {frame.study.bins} equal-width bins, {pooled}{spread}. Bars: accuracy "
        f"of a bin; grey: its {100 * LEVEL:g} % interval over images (Wilson); hatched: gap to its "
        "mean confidence; dashed: perfect calibration. Below, the density of the confidences. "
        f"Numbers{' are means over seeds' if seeds > 1 else ''}: accuracy, ECE, the expected ECE "
        "of a perfectly calibrated network (null), NLL."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per method and calibrator, by rank."""
    rows = frame.rows
    columns = min(points.COLUMNS, len(rows))
    figure, pairs = points.stacked(len(rows), style.WIDTH / max(columns, 3), 2.75, 3.2)
    for place, ((upper, lower), (_, row)) in enumerate(zip(pairs, rows.iterrows(), strict=True)):
        first = place % columns == 0
        curve_and_histogram(upper, lower, row["sums"], first)
        _label(upper, row, several=rows["method"].nunique() > 1)
        for ax in (upper, lower):
            ax.tick_params(labelleft=first)
    several = int(rows["n_seeds"].max()) > 1
    return style.finished(figure, handles(several), "Confidence (%)", columns=4)


def _sums(bins: pd.DataFrame) -> BinSums:
    """Sums of the bins of each seed, (S, M)."""
    columns = bins[COLUMNS].to_numpy(float).T
    return BinSums(*columns.reshape(3, bins["seed"].nunique(), -1))


def curve_and_histogram(upper: Axes, lower: Axes, sums: BinSums, first: bool = True) -> None:
    """Draw :func:`curve`, and below the share of images in each bin; the first of a line has names
    of the axes.
    """
    curve(upper, sums)
    count = np.atleast_2d(sums.count).sum(axis=0)
    bins = len(count)
    x, shares = (np.arange(bins) + 0.5) / bins * 100, 100 * count / count.sum()
    lower.bar(x, shares, 100 / bins, color="0.55", edgecolor="white")
    lower.set_xticks((0, 50, 100))
    lower.yaxis.set_major_locator(MaxNLocator(2))
    upper.tick_params(labelbottom=False)
    if first:
        upper.set_ylabel("Accuracy (%)")
        lower.set_ylabel("Share (%)")


def curve(ax: Axes, sums: BinSums) -> None:
    """Draw accuracy and gap of the bins of S seeds, each of the sums (S, M), or of one, (M,)."""
    counts, confidences, corrects = map(np.atleast_2d, (sums.count, sums.confidence, sums.correct))
    count, confidence, correct = counts.sum(axis=0), confidences.sum(axis=0), corrects.sum(axis=0)
    filled, bins = count > 0, len(count)
    x = (np.arange(bins)[filled] + 0.5) / bins * 100
    accuracy = 100 * correct[filled] / count[filled]
    mean = 100 * confidence[filled] / count[filled]
    ax.bar(x, accuracy, 100 / bins, color=BAR, edgecolor="white", linewidth=0.5)
    hatch: style.Look = {"hatch": "/////", "linewidth": 0, "edgecolor": GAP}
    ax.bar(x, mean - accuracy, 100 / bins, accuracy, color=to_rgba(GAP, 0.25), **hatch)
    # seeds share the images
    images = count[filled] / len(counts)
    low, high = wilson_interval(accuracy / 100, images, LEVEL)
    ax.bar(x, 100 * (high - low), 50 / bins, 100 * low, **BAND)
    ax.plot([0, 100], [0, 100], color=style.GREY, linestyle="--", linewidth=1)
    if len(counts) > 1:
        by_seed = np.where(counts > 0, 100 * corrects / np.maximum(counts, 1), np.nan)
        by_seed = by_seed[:, filled]
        low, high = np.nanmin(by_seed, axis=0), np.nanmax(by_seed, axis=0)
        ax.vlines(x, low, high, color="black", linewidth=0.8)
    ax.set(xlim=(0, 100), ylim=(0, 100), yticks=(0, 50, 100))


def _label(upper: Axes, row: pd.Series, several: bool) -> None:
    """Name of a panel, with the method if there are several, and its facts."""
    accuracy, ece, null = text.means(row, "accuracy", "ece", "ece_null")
    facts = (f"accuracy {accuracy}", f"ECE {ece}, null {null}", f"NLL {row['nll_mean']:.3f}")
    points.title(upper, *facts)
    names = [row["method"]] if several else []
    if row["calibrator"] != UNCALIBRATED or not names:
        names.append(row["calibrator"])
    upper.annotate(", ".join(names), (0.04, 0.93), **NAME)


def handles(several: bool) -> list[Any]:
    """Entries of the legend, for one seed or for several."""
    gap: style.Look = {"facecolor": "white", "edgecolor": GAP, "hatch": "/////", "linewidth": 0}
    looks: dict[str, style.Look] = {"perfect calibration": {"color": style.GREY, "linestyle": "--"}}
    if several:
        looks["range of seeds"] = style.dot(marker="|", color="black", markersize=9)
    bar = Patch(facecolor=BAR, label="accuracy of the bin")
    band = Patch(label=f"{100 * LEVEL:g} % interval", **BAND)
    return [bar, Patch(label="gap to confidence", **gap), band, *style.handles(looks)]


# diagrams of arrays
# --------------------------------------------------------------------------------------------------

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
