"""NLL against training time, with and without a calibrator."""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData
from calgrid.report.tables.costs import totals


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """NLL of each method without and with one calibrator, and its training time in seconds."""
    here = data.select(totals(data), group)
    rows = data.test(group, data.few_calibrators())
    if len(here) < 2 or rows.empty:
        return pd.DataFrame()
    return rows.merge(here[["method", "seconds"]], on="method")


def caption(frame: FigureData) -> str:
    best = front(frame.rows)
    names = text.listed([f"{row['method']} ({row['calibrator']})" for _, row in best.iterrows()])
    return (
        f"NLL against training time (first stage included) on {frame.label}, clean test split "
        f"({frame.images}), {captions.seeds(frame.rows)}; in brackets the accuracy without "
        f"calibration. Hollow: uncalibrated, filled: with {frame.calibrators()[-1]}, whose fit "
        "takes seconds at most. Line: Pareto front, where no cheaper choice has a lower NLL: "
        f"{names}. {captions.SECONDS}"
    )


def front(rows: pd.DataFrame) -> pd.DataFrame:
    """Pareto front: rows with a lower NLL than all cheaper rows, by increasing cost."""
    ordered = rows.sort_values(["seconds", "nll_mean"], kind="stable")
    best_before = ordered["nll_mean"].cummin().shift(fill_value=float("inf"))
    return ordered[ordered["nll_mean"] < best_before]


def draw(frame: FigureData) -> Figure:
    """Draw one marker per method and calibrator."""
    figure, ax = style.subplots(frame.width, 4.2)
    for row in frame.rows.itertuples():
        look = style.dot(**style.marker_look(frame.study.methods, row.method))
        face = "white" if row.calibrator == UNCALIBRATED else look["color"]
        ax.plot(row.seconds, row.nll_mean, markerfacecolor=face, markersize=7, **look)
    best = front(frame.rows)
    ax.step(
        best["seconds"], best["nll_mean"], where="post", color=style.GREY, linewidth=1, zorder=1
    )
    ax.set(xlabel="Training (s)", ylabel=text.in_unit("nll"))
    bare = frame.rows[frame.rows["calibrator"] == UNCALIBRATED].set_index("method")["accuracy_mean"]
    reached = bare.map(lambda value: f" ({text.format_with_unit('accuracy', value)})")
    looks = {
        name + reached.get(name, ""): style.dot(**style.marker_look(frame.study.methods, name))
        for name in frame.methods()
    }
    style.legend_beside(figure, {"method": style.handles(looks)})
    return figure
