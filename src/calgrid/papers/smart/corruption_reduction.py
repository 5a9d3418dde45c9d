"""Reduction of ECE and AECE by each calibrator under each corruption (SMART, Figures 11 to 14)."""

from collections.abc import Sequence

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.papers.smart.fits import FITTED, plain, plain_names
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData, among
from calgrid.storage.schema import METRICS as STORED

METRICS = ("ece", "aece")


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Tidy rows with ``reduction``, a fraction, for each corruption at the highest severity,
    calibrator and seed.
    """
    rows = data.rows(STORED, group, split="shift", metric=METRICS, method=data.reference(group))
    rows = rows[rows["severity"] > 0]
    rows = rows[rows["severity"] == rows["severity"].max()]
    rows = rows.assign(calibrator=plain(rows))
    bare = rows["calibrator"] == UNCALIBRATED
    # on val, the uncalibrated network has one value for all fit seeds; under same_shift each seed
    # has its own split
    rows["draw"] = rows["fit_seed"].where(rows["fit_on"] != "val", 0)
    keys = ["fit_on", "shift", "metric", "seed", "draw"]
    found = rows[~bare].merge(rows.loc[bare, [*keys, "value"]], on=keys, suffixes=("", "_bare"))
    return found.assign(reduction=found["value_bare"] - found["value"])


def caption(frame: FigureData) -> str:
    rows = frame.rows
    severity = int(rows["severity"].iloc[0])
    seeds, fits = rows["seed"].nunique(), rows.groupby("calibrator")["fit_seed"].nunique().max()
    counts = [text.count(seeds, "seed")]
    counts += [f"{fits} seeds of the calibrators"] if fits > 1 else []
    several = max(seeds, fits) > 1
    mean = "mean over " if several else ""
    lines = " Lines: range over these seeds." if several else ""
    return (
        f"ECE and AECE ({frame.study.bins} bins) of the uncalibrated networks of "
        f"{frame.study.reference(frame.group)} minus those after calibration, on {frame.label} "
        f"under each corruption at severity {severity}, in percentage points: positive values are "
        "an improvement. Each corruption is scored separately; "
        f"{mean}{text.listed(counts)}.{lines} If "
        "calibrators are fitted on a part of the same corruption, both errors are measured on the "
        "rest of it. A reduction cannot exceed the error before calibration. Remaining errors, "
        "accuracy and NLL are in the tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw a line per corruption, a column per error, a row of panels per way of fitting."""
    rows = frame.rows
    fitted = among(FITTED, rows["fit_on"])
    shifts = list(dict.fromkeys(rows["shift"]))
    names = among(plain_names(frame.study), rows["calibrator"])
    height = (0.26 * len(shifts) + 0.7) * len(fitted) + 0.6
    figure = style.new_figure(style.WIDTH, height)
    axes = figure.subplots(len(fitted), len(METRICS), sharey=True, squeeze=False)
    for line, fit_on in zip(axes, fitted, strict=True):
        for ax, metric in zip(line, METRICS, strict=True):
            part = rows[(rows["fit_on"] == fit_on) & (rows["metric"] == metric)]
            _panel(ax, part, shifts, names)
            ax.set_xlabel(f"Reduction of {text.name(metric)} (points)")
        if len(fitted) > 1:
            line[0].set_title(FITTED[fit_on], loc="left")
    looks = {name: style.dot(markersize=5, **style.marker_look(names, name)) for name in names}
    handles = style.handles(looks)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 8))
    return figure


def _panel(ax: Axes, rows: pd.DataFrame, shifts: Sequence[str], names: Sequence[str]) -> None:
    style.stripes(ax, [shift.replace("_", " ") for shift in shifts])
    ax.axvline(0, color=style.GREY, linewidth=1)
    step = 0.8 / max(len(names), 1)
    for place, name in enumerate(names):
        reductions = rows[rows["calibrator"] == name].groupby("shift")["reduction"]
        part = reductions.agg(["mean", "min", "max"]) * 100
        y = [shifts.index(shift) + (place - (len(names) - 1) / 2) * step for shift in part.index]
        look = style.dot(markersize=4, **style.marker_look(names, name))
        ax.hlines(y, part["min"], part["max"], color=look["color"], linewidth=1)
        ax.plot(part["mean"], y, markeredgecolor="white", markeredgewidth=0.3, **look)
