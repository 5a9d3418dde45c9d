"""Path of a calibrator's fit in the plane of ECE and NLL (SMART, Figure 2)."""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.papers.smart.diagnostics import FITS
from calgrid.papers.smart.fits import diagnosed, whose
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData, among

#: calibrators in the order of their colours
NAMES = ("ts", "pts", "smart")


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """ECE and NLL of the validation images at the traced epochs, and after the fit (``kept``)."""
    rows = diagnosed(data, group, FITS)
    return rows[rows["calibrator"].isin((*NAMES, UNCALIBRATED)) & rows["ece"].notna()]


def caption(frame: FigureData) -> str:
    rows = frame.rows
    traced = among(NAMES, rows.loc[~rows["kept"], "calibrator"])
    bare = rows[rows["calibrator"] == UNCALIBRATED].iloc[0]
    return (
        f"NLL against ECE (15 bins) of the {bare['n_samples']:,} validation images while "
        f"{text.listed(traced)} {'is' if len(traced) == 1 else 'are'} fitted to them, every 20th "
        f"epoch; {whose(frame)}. Hollow: initial weights; filled: final weights. Without "
        f"calibration: ECE {text.format_with_unit('ece', bare['ece'])}, NLL "
        f"{text.format_with_unit('nll', bare['nll'])}. The calibrators were fitted on these "
        "images; test results, accuracy and the ECE null are in the tables."
    )


def draw(frame: FigureData) -> Figure:
    """Draw a path per calibrator that is fitted iteratively, and a point per other calibrator."""
    figure = style.new_figure(style.WIDTH, 4.6)
    ax = figure.subplots()
    looks = {}
    for name in among(NAMES, frame.rows["calibrator"]):
        looks[name] = look = style.dot(markersize=6, **style.marker_look(NAMES, name))
        rows = frame.rows[frame.rows["calibrator"] == name]
        rows = rows.assign(ece=100 * rows["ece"])
        path, kept = rows[~rows["kept"]], rows[rows["kept"]]
        if len(path):
            ax.plot(path["ece"], path["nll"], color=look["color"], linewidth=1.2, alpha=0.8)
            hollow = {**look, "markerfacecolor": "none", "markersize": 8}
            ax.plot(path["ece"][:1], path["nll"][:1], **hollow)
        ax.plot(kept["ece"], kept["nll"], **look)
    ax.set_xlabel(f"{text.in_unit('ece')} of the validation images")
    ax.set_ylabel(f"{text.in_unit('nll')} of the validation images")
    figure.legend(handles=style.handles(looks), loc="outside upper center", ncols=len(looks))
    return figure
