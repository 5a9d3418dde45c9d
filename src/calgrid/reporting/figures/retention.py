"""Retention rate of MaC-Cal over the epochs, and what moves it (MaC-Cal, Figure 8)."""

from matplotlib.figure import Figure

from calgrid.reporting.figures import _epochs, _style
from calgrid.reporting.histories import histories
from calgrid.reporting.study import Group, StudyData

#: column of the history -> label; all are shares
CURVES = {
    "retention": "Weights kept (%)",
    "masked_accuracy": "Training\naccuracy (%)",
    "masked_confidence": "Training\nconfidence (%)",
    "clip": "Largest change\n(points)",
}


def caption(data: StudyData, group: Group) -> str:
    """Say what the curves show."""
    return (
        f"Masking of MaC-Cal on {data.label(group, checkpoint=False)}, by epoch of the second stage: share of weights "
        "that the mask of an epoch kept; accuracy and mean confidence over its training batches, mask on, whose "
        "weighted difference moves the next share; and the largest change that the threshold allows (percentage "
        f"points, 0 where the share is fixed); {_epochs.seeds_and_drops(data, group)}. The mask sees the training "
        "images: accuracy and confidence here are not those of the test split."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one line a method that masks its head."""
    first, *_ = CURVES
    tables = histories(data, group, first)
    if not tables:
        return None
    methods = [name for name in data.methods if name in tables]
    figure = _style.new_figure(_style.WIDTH, max(7.0, 0.19 * len(methods) + 0.8))
    for ax, (column, label) in zip(figure.subplots(len(CURVES), 1, sharex=True), CURVES.items(), strict=True):
        for method in methods:
            _epochs.curve(ax, tables[method], column, 100, methods, method)
        ax.set_ylabel(label)
        _, highest = ax.get_ylim()
        ax.set_ylim(0, highest if column == "clip" else 103)
    figure.align_ylabels()
    _epochs.finish(figure, tables, methods)
    return figure
