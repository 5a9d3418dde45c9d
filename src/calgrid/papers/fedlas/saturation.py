"""Saturation of the softmax against the norm of the features of training samples (FeDLaS, Figure
1c).
"""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report.figure import FigureData
from calgrid.report.histories import last_samples, loss_options, sampled_epochs
from calgrid.report.plotting import points
from calgrid.report.study import Group, StudyData

#: the indicator that is a norm of the features
INDICATOR = "nci_l1"


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Training samples of the runs whose indicator is the norm."""
    samples = last_samples(data, group)
    shown = []
    for method in samples["method"].unique():
        if loss_options(data, group, method).get("indicator") == INDICATOR:
            shown.append(method)
    return samples[samples["method"].isin(shown)]


def caption(frame: FigureData) -> str:
    seeds = frame.rows.groupby("method")["seed"].nunique().max()
    pooled = f"Samples of {seeds} seeds together" if seeds > 1 else "One seed"
    spread = ", mean over seeds ± standard deviation" if seeds > 1 else ""
    return (
        f"Largest softmax probability of each training sample on {frame.setting} against the L1 "
        "norm of its features, standardised as in the loss, in the last sampled epoch "
        f"({sampled_epochs(frame.rows)}). {pooled}, at most {points.POINTS:,} evenly chosen points "
        f"per panel. ρ: Spearman's rank correlation over all samples of a run{spread}."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per method."""
    methods = frame.parts("method")
    figure, axes = points.panels(len(methods))
    for ax, (method, samples) in zip(axes, methods.items(), strict=True):
        points.scatter_answers(ax, points.spread_out(samples), "nci", "confidence", 100)
        points.title(ax, method, f"ρ = {points.correlation(samples, 'nci', 'confidence')}")
    names = "Standardised norm of the features", "Largest softmax probability (%)"
    return points.finished(figure, points.answer_handles(), *names)
