"""ECE and NLL of the calibrators against the number of validation rows (SMART, Figure 5)."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.settings import val_rows
from calgrid.report.study import Group, StudyData

METRICS = ("ece", "nll")
NEEDED = (*METRICS, "ece_null")
#: values with a larger ratio are shown on a logarithmic axis
LOG_FACTOR = 4


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy rows of networks with several numbers of validation rows; adds ``place``, ``val_rows``
    and ``n_test``.
    """
    parts = []
    for each in data.groups:
        dataset, count = val_rows(data, each)
        if dataset != each.dataset:
            rows, method = data.tidy(each, "test"), data.reference(each)
            chosen = rows[(rows["method"] == method) & rows["metric"].isin(NEEDED)]
            place = f"{dataset}, {each.backbone}, {method}"
            facts = {"place": place, "val_rows": int(count), "n_test": data.test_samples(each)}
            parts.append(chosen.assign(**facts))
    if not parts:
        return pd.DataFrame()
    found = pd.concat(parts)
    return found[found.groupby("place")["val_rows"].transform("nunique") > 1]


def caption(frame: FigureData) -> str:
    images = text.listed([f"{n:,}" for n in sorted(frame.rows["n_test"].unique())])
    return (
        "ECE and NLL of the calibrators against the number of validation rows used for fitting, "
        f"on the same clean test split ({images} images); "
        f"{lines.spread(frame.rows)}. A seed is a random order of the validation rows, of which "
        f"the first are used. Uncalibrated networks need no validation rows. {lines.NULL} "
        "Accuracy, which some calibrators change, is in the tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one row per data set and backbone."""
    places = frame.parts("place")
    names = frame.calibrators()
    figure = style.new_figure(style.WIDTH, 2.5 * len(places) + 0.6)
    axes = figure.subplots(len(places), len(METRICS), sharex="row", squeeze=False)
    looks = {name: style.marker_look(names, name) | style.line_look(names, name) for name in names}
    for line, (place, rows) in zip(axes, places.items(), strict=True):
        table = lines.means(rows, ["calibrator", "val_rows"])
        for ax, metric in zip(line, METRICS, strict=True):
            _panel(ax, table, metric, looks)
            ax.set_ylabel(text.in_unit(metric))
        line[0].set_title(place, loc="left")
    for ax in axes[-1]:
        ax.set_xlabel("Validation rows")
    handles = style.handles({style.calibrator_label(name): look for name, look in looks.items()})
    handles.append(style.null_handle(lines.NULL_TICK))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 6))
    return figure


def _panel(ax: Axes, table: pd.DataFrame, metric: str, looks: Mapping[str, style.Look]) -> None:
    for name, look in looks.items():
        part = table[table["calibrator"] == name].sort_values("val_rows")
        lines.line(ax, part["val_rows"].to_numpy(), part, metric, look, len(looks))
    lines.numeric_axis(ax, table["val_rows"])
    shown = ["ece", "ece_null"] if metric == "ece" else [metric]
    values = np.concatenate([style.statistic(table, each) for each in shown])
    if not style.log_if_wide(ax, values, LOG_FACTOR, 1.25) and metric == "ece":
        ax.set_ylim(bottom=0)
