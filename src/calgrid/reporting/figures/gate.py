"""Gate of FeDLaS over the epochs: share of samples in positive mode, and how many change their mode."""

from matplotlib.figure import Figure

from calgrid.reporting.figures import _epochs, _style
from calgrid.reporting.histories import histories
from calgrid.reporting.study import Group, StudyData

#: column of the history -> label; both are shares
CURVES = {"positive_share": "Positive mode (%)", "flip_rate": "Mode flipped (%)"}


def caption(data: StudyData, group: Group) -> str:
    """Say what the curves show."""
    return (
        f"Gate of FeDLaS on {data.label(group, checkpoint=False)}: share of the training samples in positive mode "
        "(gate +1, more smoothing where the indicator is high), and share whose mode differs from that of the epoch "
        f"before; {_epochs.seeds_and_drops(data, group)}. A wide band: seeds settled on opposite modes. A fixed gate "
        "stays at 0 or 100 % and never flips. The modes are the signs of a gate that lowers the training loss, not "
        "labels of over- or under-confidence."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one line a method that has a gate."""
    first, *_ = CURVES
    tables = histories(data, group, first)
    if not tables:
        return None
    methods = [name for name in data.methods if name in tables]
    figure = _style.new_figure(_style.WIDTH, max(5.2, 0.19 * len(methods) + 0.8))
    for ax, (column, label) in zip(figure.subplots(len(CURVES), 1, sharex=True), CURVES.items(), strict=True):
        for method in methods:
            if column in tables[method]:
                _epochs.curve(ax, tables[method], column, 100, methods, method)
        ax.set_ylabel(label)
        # room for the lines of gates that are fixed
        ax.set_ylim((-3, 103) if column == first else (-1, None))
    _epochs.finish(figure, tables, methods)
    return figure
