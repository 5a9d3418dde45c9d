"""Histogram of confidence before and after retraining under masks (MaC-Cal, Figure 1a)."""

from collections.abc import Iterable

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from calgrid.metrics import Predictions
from calgrid.reporting.figures import _points
from calgrid.reporting.probes import Retrained, predictions, retrained
from calgrid.reporting.study import Group, StudyData

BINS = 20
BEFORE, AFTER = "0.72", "#d55e00"
#: smallest share that the logarithmic axis shows, in percent
LEAST = 0.05


def caption(data: StudyData, group: Group) -> str:
    """Say what the histograms are."""
    seeds = {each.run["key"]["seed"] for each in retrained(data, group)}
    pooled = f"up to {len(seeds)} seeds together" if len(seeds) > 1 else "one seed"
    return (
        f"Confidence of the uncalibrated networks on {data.label(group)}, clean test split "
        f"({data.test_samples(group):,} images; {pooled}): the first stage, and the network with its head retrained "
        f"under masks; share of the images in {BINS} bins, logarithmic. Above each panel mean confidence and accuracy "
        "before and after: they agree in a network that is calibrated on average. ECE, its null, NLL and Brier score "
        "are in the tables."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one panel a retrained method."""
    by_method: dict[str, list[Retrained]] = {}
    for each in retrained(data, group):
        by_method.setdefault(each.run["key"]["method"], []).append(each)
    if not by_method:
        return None
    figure, axes = _points.panels(len(by_method), height=2.3)
    for ax, (method, runs) in zip(axes, by_method.items(), strict=True):
        _panel(ax, method, runs, group.checkpoint)
    axes[0].set_yscale("log")
    axes[0].set_ylim(LEAST, 130)
    axes[0].set_yticks([0.1, 1, 10, 100], ["0.1", "1", "10", "100"])
    axes[0].set_xlim(0, 100)
    handles = [
        Patch(facecolor=BEFORE, label="first stage"),
        Line2D([], [], color=AFTER, label="retrained under masks"),
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=2)
    figure.supxlabel("Confidence (%)", fontsize=9)
    figure.supylabel("Share of images (%)", fontsize=9)
    return figure


def _panel(ax: Axes, method: str, runs: list[Retrained], checkpoint: str) -> None:
    before = [predictions(each.run["first_stage"]["run"], checkpoint) for each in runs]
    after = [predictions(each.run["run"], checkpoint) for each in runs]
    edges = np.linspace(0, 100, BINS + 1)
    ax.stairs(_shares(before, edges), edges, fill=True, color=BEFORE, baseline=LEAST / 10)
    ax.stairs(_shares(after, edges), edges, color=AFTER, linewidth=1.4, baseline=LEAST / 10)
    facts = "\n".join(
        f"{label} {_mean(before, name):.1f} → {_mean(after, name):.1f} %"
        for label, name in (("confidence", "confidence"), ("accuracy", "correct"))
    )
    ax.set_title(f"{method}\n{facts}", fontsize=8, linespacing=1.3)


def _shares(parts: Iterable[Predictions], edges: np.ndarray) -> np.ndarray:
    """Shares of images (B,) in percent."""
    counts, _ = np.histogram(100 * np.concatenate([part.confidence for part in parts]), edges)
    return 100 * counts / counts.sum()


def _mean(parts: Iterable[Predictions], name: str) -> float:
    return 100 * float(np.mean([getattr(part, name).mean() for part in parts]))
