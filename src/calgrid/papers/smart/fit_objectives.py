"""SMART's fit with different objectives: loss, gradient, ECE and NLL by epoch (SMART, Figures 2 and
3).
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from calgrid.papers.smart.diagnostics import FITS, MAIN
from calgrid.papers.smart.fits import diagnosed, whose
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData

#: column -> label, factor, and the ratio of values above which the axis is logarithmic
PANELS = {
    "loss": ("Loss / its first value", 1, 15),
    "gradient": ("Norm of the gradient", 1, 15),
    "ece": ("ECE (%)", 100, 15),
    "nll": ("NLL (nats)", 1, 2),
}


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Traces of at least two fits that differ in their objective only; losses are divided by their
    first value.

    The column ``best_epoch`` is the epoch whose weights were kept.
    """
    rows = diagnosed(data, group, FITS)
    rows = rows[rows["id"] == MAIN]
    if rows["calibrator"].nunique() < 2:
        return rows.iloc[:0]
    best = rows[rows["kept"]].set_index("calibrator")["epoch"]
    course = rows[~rows["kept"]].assign(best_epoch=rows["calibrator"].map(best))
    return course.assign(
        loss=course["loss"] / course.groupby("calibrator")["loss"].transform("first").abs()
    )


def caption(frame: FigureData) -> str:
    return (
        f"Fits of {MAIN} that differ in their objective only, by epoch, on the "
        f"{frame.rows['n_samples'].iloc[0]:,} validation images used for fitting; {whose(frame)}. "
        "Objectives are different functions, so each loss is divided by its first value; "
        "gradient: L2 norm with respect to the weights of the network, not scaled; ECE (15 bins) "
        "and NLL every 20th epoch. A fit stops after 200 epochs without a lower loss, and the "
        "weights of its lowest loss are kept (circles). Test results, accuracy and the ECE null "
        "are in the tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw one line per objective."""
    names = sorted(frame.rows["calibrator"].unique(), key=frame.study.calibrators.index)
    figure = style.new_figure(style.WIDTH, 5.6)
    for ax, (column, (label, factor, span)) in zip(
        figure.subplots(2, 2, sharex=True).ravel(), PANELS.items(), strict=True
    ):
        for name in names:
            rows = frame.rows[(frame.rows["calibrator"] == name) & frame.rows[column].notna()]
            epochs, values = rows["epoch"].to_numpy(), factor * rows[column].to_numpy()
            look = style.line_look(names, name)
            ax.plot(epochs, values, linewidth=1.3, **look)
            # a circle at the epoch that is nearest to the one whose weights are kept
            kept = [np.abs(epochs - rows["best_epoch"].to_numpy()).argmin()]
            ax.plot(epochs[kept], values[kept], color=look["color"], marker="o", markersize=5)
        ax.set_ylabel(label)
        values = factor * frame.rows[column].to_numpy()
        values = values[values > 0]
        if len(values):
            style.log_if_wide(ax, values, span, 1.3)
    for ax in figure.axes[-2:]:
        ax.set_xlabel("Epoch of the fit")
    handles = style.line_handles(names)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4))
    return figure
