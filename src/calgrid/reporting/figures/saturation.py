"""Saturation of the softmax against the norm of the features, one point a training sample (FeDLaS, Figure 1c)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.figures import _points
from calgrid.reporting.histories import last_samples
from calgrid.reporting.study import Group, StudyData

#: the indicator that is a norm of the features; the others are drawn from the outputs or from nothing
INDICATOR = "nci_l1"
POINTS = _points.POINTS
#: value of ``correct`` -> colour, label, area, opacity; the wrong ones are few and drawn last
LOOKS = {1: ("#0173b2", "correct", 7, 0.35), 0: ("#d55e00", "wrong", 14, 0.9)}


def caption(data: StudyData, group: Group) -> str:
    """Say what the points are."""
    samples = last_samples(data, group, INDICATOR)
    epochs = sorted({int(table["epoch"].iloc[0]) + 1 for tables in samples.values() for table in tables})
    seeds = max(len(tables) for tables in samples.values())
    pooled = f"samples of {seeds} seeds together" if seeds > 1 else "one seed"
    spread = ", mean over seeds ± standard deviation" if seeds > 1 else ""
    return (
        f"Largest softmax probability of each training sample on {data.label(group, checkpoint=False)} against the L1 "
        "norm of its features, standardised as the loss does it, in the last epoch that was sampled "
        f"({text.listed([str(epoch) for epoch in epochs])}); {pooled}, at most {POINTS:,} evenly chosen points a "
        f"panel. ρ: Spearman's rank correlation over all samples of a run{spread}."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one panel a method whose indicator is the norm."""
    samples = last_samples(data, group, INDICATOR)
    if not samples:
        return None
    figure, axes = _points.panels(len(samples))
    for ax, (method, tables) in zip(axes, samples.items(), strict=True):
        _scatter(ax, pd.concat(tables, ignore_index=True))
        rho = _points.correlation(tables, "nci", "confidence")
        ax.set_title(f"{method}\nρ = {rho}", fontsize=8, linespacing=1.3)
    handles = [
        Line2D([], [], linestyle="", marker="o", markersize=5, color=shade, label=label)
        for shade, label, *_ in LOOKS.values()
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=len(handles))
    figure.supxlabel("Standardised norm of the features", fontsize=9)
    figure.supylabel("Largest softmax probability (%)", fontsize=9)
    return figure


def _scatter(ax: Axes, samples: pd.DataFrame) -> None:
    chosen = _points.spread_out(samples, POINTS)
    for correct, (shade, _, area, opacity) in LOOKS.items():
        part = chosen[chosen["correct"] == correct]
        style = {"color": shade, "alpha": opacity, "linewidths": 0, "rasterized": True}
        ax.scatter(part["nci"], 100 * part["confidence"], area, **style)
