"""Reliability by groups of the logit margin, for SMART and temperature scaling (SMART, Figures 1
and 15).
"""

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.papers.smart.diagnostics import COMPARED, MARGINS
from calgrid.papers.smart.fits import diagnosed, whose
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.statistics.paired import wilson_interval

#: groups of equal size by margin, and bins of equal size by confidence within each group
GROUPS, BINS = 4, 6
#: from the smallest margins to the largest
COLOURS = ("#d55e00", "#de8f05", "#029e73", "#0173b2")
LEVEL = 0.95


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Sums over images of similar margin: one row per calibrator, margin group and bin of the
    confidence.

    Columns: calibrator, quarter (0 = the smallest margins), bin (-1 = all images of the group), low
    and high (ends of the margins), count, confidence, correct.
    """
    rows = diagnosed(data, group, MARGINS)
    rows = rows[rows["split"] == "test"]
    parts = []
    for name in COMPARED:
        confidence = rows[f"confidence_{name}"]
        if confidence.notna().any():
            parts.append(_sums(rows, confidence.to_numpy()).assign(calibrator=name))
    return pd.concat(parts).assign(**rows[["method", "seed"]].iloc[0]) if parts else pd.DataFrame()


def _sums(rows: pd.DataFrame, confidence: np.ndarray) -> pd.DataFrame:
    """Rows of all groups and bins; groups and bins have nearly equal sizes, ties in the order of
    the images.
    """
    margin, correct = rows["margin"].to_numpy(), rows["correct"].to_numpy()
    found = []
    for quarter, own in enumerate(np.array_split(np.argsort(margin, kind="stable"), GROUPS)):
        bins = np.array_split(own[np.argsort(confidence[own], kind="stable")], BINS)
        for place, images in enumerate([own, *bins], start=-1):
            if len(images):
                sums = (len(images), confidence[images].sum(), correct[images].sum())
                found.append((quarter, place, margin[own[0]], margin[own[-1]], *sums))
    return pd.DataFrame(
        found, columns=["quarter", "bin", "low", "high", "count", "confidence", "correct"]
    )


def caption(frame: FigureData) -> str:
    return (
        f"Reliability by margin between the two largest logits, {whose(frame)}: the {frame.images} "
        f"of the clean test split in {GROUPS} groups of equal size by the margin of the "
        f"uncalibrated logits. Above, accuracy against confidence in {BINS} bins of equal size per "
        "group; dashed: perfect calibration. Below, mean confidence minus accuracy of each group "
        "(percentage points; above 0 is over-confident) with 95 % intervals for the sampling "
        "error of the accuracy (Wilson). The calibrators shown do not change predicted classes, "
        "so all columns have the same accuracy; NLL, Brier score and the ECE null are in the "
        "tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one column per calibrator."""
    shown = frame.parts("calibrator")
    figure = style.new_figure(style.WIDTH, 5.4)
    ratios = {"height_ratios": [3, 2]}
    axes = figure.subplots(2, len(shown), sharey="row", squeeze=False, gridspec_kw=ratios)
    for upper, lower, (name, rows) in zip(*axes, shown.items(), strict=True):
        _reliability(upper, rows[rows["bin"] >= 0])
        _gaps(lower, rows[rows["bin"] < 0])
        upper.set_title("uncalibrated" if name == UNCALIBRATED else name)
    axes[0, 0].set_ylabel("Accuracy (%)")
    axes[1, 0].set_ylabel("Confidence −\naccuracy (points)")
    figure.align_ylabels()
    handles = []
    for row in frame.rows.drop_duplicates("quarter").itertuples():
        said = f"{row.low:.1f} to {row.high:.1f}"
        look: style.Look = {"color": COLOURS[row.quarter], "marker": "o", "markersize": 4}
        handles.append(style.handle(label=said, **look))
    figure.legend(
        handles=handles, title="margin (logits)", loc="outside upper center", ncols=len(handles)
    )
    return figure


def _reliability(ax: Axes, rows: pd.DataFrame) -> None:
    ax.plot([0, 100], [0, 100], color=style.GREY, linestyle="--", linewidth=1)
    for quarter, bins in rows.groupby("quarter"):
        confidence = 100 * bins["confidence"] / bins["count"]
        accuracy = 100 * bins["correct"] / bins["count"]
        look: style.Look = {"color": COLOURS[quarter], "marker": "o", "markersize": 4}
        ax.plot(confidence, accuracy, linewidth=1, **look)
    ticks = (0, 50, 100)
    ax.set(xlim=(0, 102), ylim=(0, 102), xticks=ticks, yticks=ticks, xlabel="Confidence (%)")


def _gaps(ax: Axes, groups: pd.DataFrame) -> None:
    for place, row in enumerate(groups.itertuples()):
        gap = 100 * (row.confidence - row.correct) / row.count
        ax.bar([place], gap, 0.7, color=COLOURS[row.quarter], alpha=0.75)
        accuracies = np.array(wilson_interval(row.correct / row.count, row.count, LEVEL))
        ends = 100 * (row.confidence / row.count - accuracies)
        ax.vlines([place], *ends, color="black", linewidth=1.2)
    ax.axhline(0, color=style.GREY, linewidth=1)
    ax.grid(axis="x", visible=False)
    labels = ["smallest", *[""] * (len(groups) - 2), "largest"]
    ax.set_xticks(range(len(groups)), labels[: len(groups)])
    ax.set_xlabel("Margin")
