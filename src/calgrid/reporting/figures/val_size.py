"""ECE and NLL of the calibrators against the number of validation rows that fitted them (SMART, Figure 5)."""

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.figures import _lines, _style
from calgrid.reporting.settings import val_rows
from calgrid.reporting.study import Group, StudyData

METRICS = ("ece", "nll")
NEEDED = (*METRICS, "ece_null")
#: values that differ by more than this factor stand on a logarithmic axis
LOG_FACTOR = 4


def caption(data: StudyData, group: Group) -> str:
    """Say what the lines show."""
    rows = pd.concat(_places(data).values())
    samples = sorted({data.test_samples(each) for each in data.groups if val_rows(data, each)[0] != each.dataset})
    images = text.listed([f"{n:,}" for n in samples])
    return (
        "ECE and NLL of the calibrators against the number of validation rows that fitted them, scored on the same "
        f"clean test split throughout ({images} images); {_lines.spread(rows)}. A seed is a random order of the "
        "validation rows, of which each number takes the first. Uncalibrated networks need no validation rows. "
        f"{_lines.NULL} Accuracy, which some calibrators change, is in the tables."
    )


def draw(data: StudyData, group: Group) -> Figure | None:
    """Draw one row a data set and backbone."""
    places = _places(data)
    if not places:
        return None
    used = pd.concat(places.values())
    names = [name for name in data.calibrators if (used["calibrator"] == name).any()]
    figure = _style.new_figure(_style.WIDTH, 2.5 * len(places) + 0.6)
    axes = figure.subplots(len(places), len(METRICS), sharex="row", squeeze=False)
    for line, (place, rows) in zip(axes, places.items(), strict=True):
        table = _lines.means(rows, ["calibrator", "val_rows"])
        for ax, metric in zip(line, METRICS, strict=True):
            _panel(ax, table, metric, names)
            ax.set_ylabel(text.in_unit(metric))
        line[0].set_title(place, loc="left")
    for ax in axes[-1]:
        ax.set_xlabel("Validation rows")
    handles = [Line2D([], [], label=_style.calibrator_label(name), **_look(names, name)) for name in names]
    figure.legend(handles=[*handles, _lines.null_handle()], loc="outside upper center", ncols=min(len(handles) + 1, 6))
    return figure


def _places(data: StudyData) -> dict[str, pd.DataFrame]:
    """Data set and backbone -> tidy rows with the column ``val_rows``, where there are several numbers of them."""
    parts: dict[str, list[pd.DataFrame]] = {}
    for group in data.groups:
        dataset, count = val_rows(data, group)
        if dataset != group.dataset:
            rows = data.tidy(group, "test")
            chosen = rows[(rows["method"] == data.reference(group)) & rows["metric"].isin(NEEDED)]
            name = f"{dataset}, {group.backbone}, {data.reference(group)}"
            parts.setdefault(name, []).append(chosen.assign(val_rows=int(count)))
    return {place: pd.concat(each) for place, each in parts.items() if len(each) > 1}


def _panel(ax: Axes, table: pd.DataFrame, metric: str, names: list[str]) -> None:
    for name in names:
        part = table[table["calibrator"] == name].sort_values("val_rows")
        _lines.line(ax, part["val_rows"].to_numpy(), part, metric, _look(names, name), len(names))
    _lines.numeric_axis(ax, table["val_rows"])
    shown = ["ece_mean", "ece_null_mean"] if metric == "ece" else [f"{metric}_mean"]
    values = _style.scaled(metric, table[shown].to_numpy(float))
    if _style.spans(values, LOG_FACTOR):
        _style.log_axis(ax, "y", values.min() / 1.25, values.max() * 1.25)
    elif metric == "ece":
        ax.set_ylim(bottom=0)


def _look(names: list[str], name: str) -> dict[str, object]:
    return {
        "color": _style.colour(names, name),
        "marker": _style.marker(names, name),
        "linestyle": _style.line(names, name),
    }
