"""Reliability by groups of the logit margin: where SMART changes what temperature scaling cannot (Figures 1, 15)."""

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.calibrators import build_calibrator
from calgrid.metrics import Predictions, check_probabilities
from calgrid.metrics._binning import BinSums
from calgrid.reporting.figures import _fits, _style
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData

#: groups with equal numbers of images by margin, and bins of equal numbers by confidence within each
GROUPS, BINS = 4, 6
SHOWN = (UNCALIBRATED, "ts", "pts", _fits.MAIN)
#: from the smallest margins to the largest
COLOURS = ("#d55e00", "#de8f05", "#029e73", "#0173b2")
NORMAL = 1.959964


class MarginGroup(NamedTuple):
    """Images of similar margin: ends of the margins, and sums over all images and over bins of them, (1 + B,)."""

    low: float
    high: float
    sums: BinSums


def caption(data: StudyData, group: Group) -> str:
    """Say what the panels show."""
    return (
        f"Reliability by margin between the two largest logits, {_fits.whose(data, group)}: the "
        f"{data.test_samples(group):,} images of the clean test split in {GROUPS} groups of equal numbers by the "
        f"margin of the uncalibrated logits. Above, accuracy against confidence in {BINS} bins of equal numbers a "
        "group; dashed: perfect calibration. Below, mean confidence minus accuracy of each group (percentage points, "
        "above 0 is over-confident) with 95 % intervals for the sampling error of the accuracy (Wilson). No calibrator "
        "shown changes which class is predicted, so accuracy is the same in all columns; NLL, Brier score and the ECE "
        "null are in the tables."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one column a calibrator."""
    fits = _fits.fits(data, group)
    if fits is None:
        return None
    test, val = fits.logits("test"), fits.logits("val")
    margin = _fits.margins(test)
    fitted = {UNCALIBRATED: build_calibrator(UNCALIBRATED).fit(val.logits, val.label), **fits.calibrators}
    shown = {name: fitted[name] for name in SHOWN if name in fitted}
    figure = _style.new_figure(_style.WIDTH, 5.4)
    axes = figure.subplots(2, len(shown), sharey="row", squeeze=False, gridspec_kw={"height_ratios": [3, 2]})
    for column, (name, calibrator) in enumerate(shown.items()):
        groups = _groups(margin, check_probabilities(calibrator.predict_proba(test.logits), test.label))
        _reliability(axes[0, column], groups)
        _gaps(axes[1, column], groups)
        axes[0, column].set_title("uncalibrated" if name == UNCALIBRATED else name)
    axes[0, 0].set_ylabel("Accuracy (%)")
    axes[1, 0].set_ylabel("Confidence −\naccuracy (points)")
    figure.align_ylabels()
    handles = [
        Line2D([], [], color=shade, marker="o", markersize=4, label=f"{low:.1f} to {high:.1f}")
        for shade, (low, high, _) in zip(COLOURS, groups, strict=False)
    ]
    figure.legend(handles=handles, title="margin (logits)", loc="outside upper center", ncols=len(handles))
    return figure


def _groups(margin: np.ndarray, predictions: Predictions) -> list[MarginGroup]:
    """Groups of nearly equal size by margin (N,), ties in the order of the rows."""
    groups = []
    for rows in np.array_split(np.argsort(margin, kind="stable"), GROUPS):
        confidence, correct = predictions.confidence[rows], predictions.correct[rows]
        bins = np.array_split(np.argsort(confidence, kind="stable"), BINS)
        parts = [each for each in (np.arange(len(rows)), *bins) if len(each)]
        sums = BinSums(
            np.array([len(each) for each in parts], dtype=float),
            np.array([confidence[each].sum() for each in parts]),
            np.array([correct[each].sum() for each in parts]),
        )
        if len(rows):
            groups.append(MarginGroup(float(margin[rows[0]]), float(margin[rows[-1]]), sums))
    return groups


def _reliability(ax: Axes, groups: list[MarginGroup]) -> None:
    ax.plot([0, 100], [0, 100], color=_style.GREY, linestyle="--", linewidth=1)
    for shade, (*_, sums) in zip(COLOURS, groups, strict=False):
        confidence, accuracy = (100 * part[1:] / sums.count[1:] for part in (sums.confidence, sums.correct))
        ax.plot(confidence, accuracy, color=shade, marker="o", markersize=4, linewidth=1)
    ax.set(xlim=(0, 102), ylim=(0, 102), xticks=(0, 50, 100), yticks=(0, 50, 100), xlabel="Confidence (%)")


def _gaps(ax: Axes, groups: list[MarginGroup]) -> None:
    for place, (shade, (*_, sums)) in enumerate(zip(COLOURS, groups, strict=False)):
        count, accuracy = sums.count[0], sums.correct[0] / sums.count[0]
        ends = 100 * (sums.confidence[0] / count - _wilson(accuracy, count))
        ax.bar([place], 100 * sums.gap[:1] / count, 0.7, color=shade, alpha=0.75)
        ax.vlines([place], *ends, color="black", linewidth=1.2)
    ax.axhline(0, color=_style.GREY, linewidth=1)
    ax.grid(axis="x", visible=False)
    ax.set_xticks(range(len(groups)), ["smallest", *[""] * (len(groups) - 2), "largest"][: len(groups)])
    ax.set_xlabel("Margin")


def _wilson(share: float, count: float) -> np.ndarray:
    """Both ends (2,) of Wilson's score interval of a share among ``count``: it has a length at a share of 1, too."""
    centre = share + NORMAL**2 / (2 * count)
    reach = NORMAL * np.sqrt(share * (1 - share) / count + (NORMAL / (2 * count)) ** 2)
    return (centre + np.array([-reach, reach])) / (1 + NORMAL**2 / count)
