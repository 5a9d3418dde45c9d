"""AECE of calibrators for each backbone, with published numbers (SMART, Figures 4, 6 to 10)."""

import textwrap
from collections.abc import Sequence

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.patheffects import withStroke

from calgrid.papers.cells import printed_cells
from calgrid.papers.smart.fits import FITTED, plain, plain_names
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.study import Group, StudyData, among
from calgrid.storage.schema import MEAN_SHIFT

METRIC = "aece"
#: largest number of calibrators with bars; with more, named variants are left out
MOST = 12
#: share of the width of a backbone that its bars take
SHARE = 0.84
#: mark of a published number, with a white outline to be visible on dark bars
PRINTED: style.Look = {
    "color": "black",
    "marker": "_",
    "linestyle": "",
    "markersize": 9,
    "markeredgewidth": 1.4,
    "path_effects": [withStroke(linewidth=3, foreground="white")],
}
#: largest length of a line of a backbone's name
LETTERS = 15


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Rows of the metric with the columns ``panel`` (its title), ``shown_std`` and ``published``.

    Empty for data sets with a single backbone, whose calibrators are in other figures.
    """
    alike = data.networks(group)
    if len(alike) < 2:
        return pd.DataFrame()
    parts = []
    for each in alike:
        rows = pd.concat([data.tidy(each, "test"), data.shift_tidy(each)])
        parts.append(rows[(rows["method"] == data.reference(each)) & (rows["metric"] == METRIC)])
    chosen = pd.concat(parts, ignore_index=True)
    chosen = chosen.assign(shown_std=lines.deviation(chosen))
    panels = [chosen[chosen["split"] == "test"].assign(panel="clean test split")]
    shifted = chosen[(chosen["shift"] == MEAN_SHIFT) & (chosen["severity"] > 0)]
    if len(shifted):
        worst = shifted[shifted["severity"] == shifted["severity"].max()]
        severity = int(worst["severity"].iloc[0])
        worst = worst.assign(published=_printed(data, worst, severity), calibrator=plain(worst))
        for fit_on, words in FITTED.items():
            rows = worst[worst["fit_on"] == fit_on]
            if len(rows):
                count = text.count(int(rows["n_shifts"].max()), "corruption")
                panel = f"mean over {count} at severity {severity}, {words}"
                panels.append(rows.assign(panel=panel))
    return pd.concat(panels, ignore_index=True)


def caption(frame: FigureData) -> str:
    rows = frame.rows
    shown, all_names = _names(frame.study, rows), set(rows["calibrator"])
    left = spread = ""
    if len(shown) < len(all_names):
        left = f" Shown are {len(shown)} of {len(all_names)} calibrators."
    if rows["n_seeds"].max() > 1:
        spread = "Lines: ± one standard deviation over seeds. "
    elif rows["n_fits"].max() > 1:
        spread = (
            "Lines: ± one standard deviation over seeds of the calibrator, on one network and one "
            "test set. "
        )
    printed = "Black ticks: published numbers. " if rows["published"].notna().any() else ""
    return (
        f"Adaptive calibration error ({frame.study.bins} adaptive bins) of the calibrators on "
        f"{frame.group.dataset} by backbone, networks of "
        f"{text.listed(sorted(set(rows['method'])))}; {'; '.join(rows['panel'].unique())}. "
        f"{spread}{printed}The AECE of a perfectly calibrated network is above 0, too, and "
        "falls with the number of images. Accuracy, NLL, Brier score and ECE with its null are in "
        f"the other figures.{left}"
    )


def draw(frame: FigureData) -> Figure:
    """Draw one group of bars per backbone; clean test split above, then corrupted images for each
    way of fitting.
    """
    panels = frame.parts("panel")
    names = _names(frame.study, frame.rows)
    figure = style.new_figure(style.WIDTH, 2.6 * len(panels) + 0.8)
    for ax, (said, rows) in zip(
        figure.subplots(len(panels), 1, squeeze=False)[:, 0], panels.items(), strict=True
    ):
        _bars(ax, rows, names)
        ax.set_title(said, loc="left")
        ax.set_ylabel(text.in_unit(METRIC))
    handles: list[Line2D | Patch] = [
        Patch(label=style.calibrator_label(name), **_look(names, name)) for name in names
    ]
    if frame.rows["published"].notna().any():
        handles.append(style.handle(label="in print", **PRINTED))
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4))
    return figure


def _printed(data: StudyData, rows: pd.DataFrame, severity: int) -> pd.Series:
    """Published numbers beside tidy rows of a severity, without suspect ones."""
    place = ["dataset", "backbone", "method", "calibrator", "metric", "shift"]
    cells = printed_cells(data)
    known = cells.loc[cells["severity"] == severity, [*place, "published"]].drop_duplicates(place)
    return rows[place].merge(known, on=place, how="left")["published"].set_axis(rows.index)


def _names(data: StudyData, rows: pd.DataFrame) -> list[str]:
    """Calibrators in the order of the study, without named variants if there are too many."""
    names = among(plain_names(data), rows["calibrator"])
    if len(names) > MOST:
        variants = data.manifest["configuration"].get("calibrators", {})
        names = [name for name in names if name not in variants]
    return names[:MOST]


def _bars(ax: Axes, rows: pd.DataFrame, names: Sequence[str]) -> None:
    backbones = list(dict.fromkeys(rows["backbone"]))
    present = among(names, rows["calibrator"])
    width = SHARE / len(present)
    for place, name in enumerate(present):
        part = rows[rows["calibrator"] == name]
        x = part["backbone"].map(backbones.index) + (place - (len(present) - 1) / 2) * width
        mean, std, printed = text.shown(METRIC, part[["mean", "shown_std", "published"]].T)
        ax.bar(x, mean, width, linewidth=0.4, edgecolor="white", **_look(names, name))
        known = ~np.isnan(std)
        low, high = (mean - std).clip(0), mean + std
        ax.vlines(x[known], low[known], high[known], color="black", linewidth=1)
        ax.plot(x, printed, **PRINTED)
    ax.set_xticks(range(len(backbones)), list(map(_wrapped, backbones)))
    ax.set_xlim(-0.5, len(backbones) - 0.5)
    ax.grid(axis="x", visible=False)


def _look(names: Sequence[str], name: str) -> style.Look:
    """Bars of a name; the hatch changes where colours repeat."""
    hatch = "" if style.line(names, name) == "-" else "////"
    return {"facecolor": style.colour(names, name), "hatch": hatch}


def _wrapped(name: str) -> str:
    """Name of a backbone in lines that fit below its bars."""
    return "\n".join(textwrap.wrap(name.replace("_", "_ "), LETTERS)).replace("_ ", "_")
