"""Means with intervals, one row per method and calibrator: calibration errors and accuracy, NLL and
Brier score.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.recipes import best_of_all
from calgrid.report.study import Group, StudyData, among

#: largest extent of an axis, as a multiple of the largest mean; longer intervals end in an arrow
REACH = 2.5
#: number of calibrators shown, with the uncalibrated network; the table has all
MOST = 4
#: errors on one scale
ERRORS = ("ece_debiased", "ece")
#: means that differ by more than this factor are shown on a logarithmic axis
LOG_FACTOR = {"ece": 15, "ece_debiased": 15, "nll": 4, "brier": 4}


@dataclass(frozen=True)
class Intervals:
    """One panel per metric; calibrators are chosen by the first."""

    metrics: tuple[str, ...]
    #: begin of the caption, and its last sentences
    shows: str
    reading: str

    def collect(self, data: StudyData, group: Group) -> pd.DataFrame:
        """Wide rows of all methods, by rank, with up to MOST calibrators.

        These are :meth:`StudyData.few_calibrators`, the best recipe's calibrator, then the ones
        with the lowest metric averaged over methods.
        """
        rows = data.test(group)
        recipes = best_of_all(data, group)
        few = data.few_calibrators()
        if recipes is not None and recipes.best["calibrator"] not in few:
            few = [*few, recipes.best["calibrator"]]
        means = rows.groupby("calibrator")[f"{self.metrics[0]}_mean"].mean()
        best = means.sort_values(kind="stable").index
        shown = [*few, *best.difference(few, sort=False)][:MOST]
        count = rows["calibrator"].nunique()
        return rows[rows["calibrator"].isin(shown)].assign(n_calibrators=count, n_few=len(few))

    def caption(self, frame: FigureData) -> str:
        count = int(frame.rows["n_calibrators"].max())
        first = "debiased ECE" if self.metrics[0] == "ece_debiased" else text.name(self.metrics[0])
        others = MOST - int(frame.rows["n_few"].max())
        single = frame.study.is_single
        shown, chosen = f"of every {'' if single else 'method and '}calibrator", ""
        if count > MOST:
            shown = f"{'' if single else 'of every method '}with {MOST} of {count} calibrators"
            chosen = (
                f"Calibrators: {text.listed(frame.study.few_calibrators())}, that of the lowest "
                f"NLL, and of the others the {others} with the lowest mean {first}."
            )
        bars = captions.interval(frame.study, frame.rows)
        sentences = [
            f"{self.shows} {shown} on {frame.label}, clean test split "
            f"({frame.images}), {captions.seeds(frame.rows)}{captions.order(frame.rows)}.",
            chosen,
            bars,
            captions.ARROW if bars else "",
            self.reading,
        ]
        return " ".join(filter(None, sentences))

    def draw(self, frame: FigureData) -> Figure:
        """Draw one row per method and calibrator."""
        rows, calibrators, known = frame.rows, frame.calibrators(), frame.study.calibrators
        methods = list(dict.fromkeys(rows["method"]))
        step = 1 / (len(calibrators) + 1)
        centre = rows["method"].map(methods.index).astype(float)
        offset = rows["calibrator"].map(calibrators.index) - (len(calibrators) - 1) / 2
        height = len(methods) * max(0.3, 0.13 * (len(calibrators) + 1)) + 1.1
        wide, columns = frame.width > style.COLUMN, len(self.metrics)
        figure, axes = style.subplots(frame.width, height, 1, columns, sharey=True)
        for ax, metric in zip(axes, self.metrics, strict=True):
            style.stripes(ax, methods)
            _intervals(ax, rows.assign(y=centre + offset * step), metric, known)
            label = text.in_unit(metric)
            ax.set_xlabel(label if wide else label.replace(" (", "\n("))
            if not wide and ax.get_xscale() == "linear":
                ax.xaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
        looks = {
            style.calibrator_label(name): {"markersize": 5, **style.marker_look(known, name)}
            for name in calibrators
        }
        handles = style.handles(looks)
        handles += [style.null_handle()] if "ece" in self.metrics else []
        return style.finished(figure, handles, columns=6)


ECE = Intervals(
    ("ece_debiased", "ece", "accuracy"),
    "Debiased ECE, plain ECE and accuracy",
    "Grey ticks: expected plain ECE of a perfectly calibrated network with the same confidences "
    "and number of images; an ECE at or below its tick is no evidence of miscalibration.",
)
NLL = Intervals(
    ("nll", "brier"), "NLL and Brier score", "Both are proper scoring rules; lower is better."
)


def _intervals(ax: Axes, rows: pd.DataFrame, metric: str, calibrators: Sequence[str]) -> None:
    for name in among(calibrators, rows["calibrator"]):
        part = rows[rows["calibrator"] == name]
        mean, low, high = style.estimates(part, metric)
        look = style.dot(markersize=4.5, **style.marker_look(calibrators, name))
        known = ~np.isnan(low)
        # drawn from end to end, as the interval of a biased error need not contain the mean
        bars: style.Look = {"color": look["color"], "linewidth": 1.4, "alpha": 0.75}
        ax.hlines(part["y"][known], low[known], high[known], **bars)
        ax.plot(mean, part["y"], markeredgecolor="white", markeredgewidth=0.4, **look)
    if metric == "ece":
        ax.plot(style.statistic(rows, "ece_null"), rows["y"], markersize=7, **style.NULL_TICK)
    _frame(ax, metric, rows)
    for name in among(calibrators, rows["calibrator"]):
        part = rows[rows["calibrator"] == name]
        _, low, high = style.estimates(part, metric)
        style.arrows(ax, part["y"].to_numpy(), low, high, style.colour(calibrators, name))


def _frame(ax: Axes, metric: str, rows: pd.DataFrame) -> None:
    """Set limits to show all means, and intervals up to ``REACH``; both errors share limits, which
    start at 0 on a linear axis.
    """
    alike = ERRORS if metric in ERRORS else (metric,)
    means, low, high = map(
        np.hstack, zip(*(style.estimates(rows, name) for name in alike), strict=True)
    )
    if metric in ERRORS:
        means = np.hstack([means, style.statistic(rows, "ece_null")])
    first, last = np.nanmin([*low, *means]), np.nanmax([*high, *means])
    least, most = means.min(), means.max()
    if metric in LOG_FACTOR and style.spans(means, LOG_FACTOR[metric]):
        style.log_axis(ax, "x", max(first / 1.1, least / REACH), min(1.1 * last, REACH * most))
    elif metric not in ERRORS:
        room = max(most - least, 0.02 * most)
        end = min(last + room / 20, most + room, 100)
        ax.set_xlim(max(first - room / 20, least - room, 0), end)
    else:
        end = max(min(1.05 * last, REACH * most), 1.1 * most, style.SMALLEST_AXIS)
        ax.set_xlim(min(0.0, 1.1 * least), end)
