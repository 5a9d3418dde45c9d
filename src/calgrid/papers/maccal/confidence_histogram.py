"""Histogram of confidence before and after retraining under masks (MaC-Cal, Figure 1a)."""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from calgrid.report.figure import FigureData
from calgrid.report.plotting import points, style
from calgrid.report.probes import retrained
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.storage.schema import BINS, HISTOGRAM_BINS

#: stage -> its line or area
LOOKS: dict[str, style.Look] = {
    "before": {"color": "0.72", "fill": True},
    "after": {"color": "#d55e00", "linewidth": 1.4},
}
EDGES = np.linspace(0, 100, HISTOGRAM_BINS + 1)
#: smallest share that the logarithmic axis shows, in percent
LEAST = 0.05


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Bins of the confidence of each retrained run and of its first stage, if the study includes
    the first stage.

    The column ``stage`` is ``before`` or ``after``; ``method`` is the method of the second stage.
    """
    bins = data.rows(BINS, group, n_bins=HISTOGRAM_BINS, calibrator=UNCALIBRATED)
    bins = bins.set_index(["method", "seed"])
    first = {run["train"]: run["key"] for run in data.runs(group)}
    parts = []
    for key, before, _ in retrained(data, group):
        if before["train"] in first:
            for stage, of in (("before", first[before["train"]]), ("after", key)):
                own = bins.loc[[(of["method"], of["seed"])]].reset_index()
                parts.append(own.assign(stage=stage, method=key["method"], seed=key["seed"]))
    return pd.concat(parts) if parts else bins.iloc[:0]


def caption(frame: FigureData) -> str:
    seeds = frame.rows["seed"].nunique()
    pooled = f"up to {seeds} seeds together" if seeds > 1 else "one seed"
    return (
        f"Confidence of the uncalibrated networks on {frame.label}, clean test split "
        f"({frame.images}; {pooled}). Shown: the first stage, and the network with its head "
        f"retrained under masks; share of the images in {HISTOGRAM_BINS} bins, logarithmic. "
        "Above each panel: mean confidence and accuracy before and after, which are equal for a "
        "network that is calibrated on average. ECE, its null, NLL and Brier score are in the "
        "tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one panel per retrained method."""
    methods = frame.parts("method")
    figure, axes = points.panels(len(methods), height=2.3)
    for ax, (method, rows) in zip(axes, methods.items(), strict=True):
        parts = dict(list(rows.groupby("stage")))
        for stage, look in LOOKS.items():
            counts = parts[stage].groupby("bin")["count"].sum().to_numpy()
            ax.stairs(100 * counts / counts.sum(), EDGES, baseline=LEAST / 10, **look)
        facts = []
        for label, name in (("confidence", "confidence"), ("accuracy", "correct")):
            before, after = _mean(parts["before"], name), _mean(parts["after"], name)
            facts.append(f"{label} {before:.1f} → {after:.1f} %")
        points.title(ax, method, *facts)
    axes[0].set_yscale("log")
    axes[0].set_ylim(LEAST, 130)
    axes[0].set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes[0].set_xlim(0, 100)
    handles = [
        Patch(facecolor=LOOKS["before"]["color"], label="first stage"),
        style.handle(color=LOOKS["after"]["color"], label="retrained under masks"),
    ]
    return points.finished(figure, handles, "Confidence (%)", "Share of images (%)", columns=2)


def _mean(rows: pd.DataFrame, name: str) -> float:
    """Mean over runs of a sum over bins, in percent of the images."""
    sums = rows.groupby("seed")[[name, "count"]].sum()
    return 100 * float((sums[name] / sums["count"]).mean())
