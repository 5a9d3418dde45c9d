"""Over- and underconfidence of the uncalibrated networks: O-ECE and U-ECE, the two parts of the
ECE.
"""

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import UNCALIBRATED, Group, StudyData

#: metric -> colour, label
PARTS = {
    "o_ece": ("#d55e00", "O-ECE: overconfident bins"),
    "u_ece": ("#0173b2", "U-ECE: underconfident bins"),
}
#: height of a bar; a row of height 1 has two
BAR = 0.36
#: largest extent of the axis, as a multiple of the longest bar; longer intervals end in an arrow
REACH = 1.6


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of the methods in the order of their rank."""
    rows = data.test(group, [UNCALIBRATED])
    return rows if "o_ece_mean" in rows else rows.iloc[:0]


def caption(frame: FigureData) -> str:
    rows = frame.rows
    bars = captions.interval(frame.study, rows, "Black lines")
    bars += f" {captions.ARROW}" if bars else ""
    return (
        f"Over- and underconfidence error of the uncalibrated networks on {frame.label}, clean "
        f"test split ({frame.images}), {frame.study.bins} equal-width bins, "
        f"{captions.seeds(rows)}{captions.order(rows)}. O-ECE sums the gaps of the bins whose "
        "confidence is above their accuracy, U-ECE those of the other bins; their sum is the ECE. "
        f"{bars} Grey ticks: expected ECE of a perfectly calibrated network with the "
        "same confidences, to be compared with the sum of both bars. Accuracy, NLL and Brier "
        "score of the same networks are in the table."
    )


def draw(frame: FigureData) -> Figure:
    """Draw two bars per method."""
    rows = frame.rows
    figure, ax = style.subplots(frame.width, 0.42 * len(rows) + 1.1)
    style.stripes(ax, list(rows["method"]))
    rows = rows.assign(y=np.arange(len(rows), dtype=float))
    estimates = {metric: style.estimates(rows, metric) for metric in PARTS}
    places = {metric: rows["y"] + (place - 0.5) * BAR for place, metric in enumerate(PARTS)}
    for metric, (shade, _) in PARTS.items():
        mean, low, high = estimates[metric]
        y, known = places[metric], ~np.isnan(low)
        ax.barh(y, mean, BAR, color=shade, alpha=0.75)
        # drawn from end to end, as the interval of a biased error need not contain the mean
        low, high = low[known].clip(0), high[known].clip(0)
        ax.hlines(y[known], low, high, color="black", linewidth=1.1)
    null = style.statistic(rows, "ece_null")
    ax.plot(null, rows["y"], markersize=15, **style.NULL_TICK)
    means, _, high = np.hstack(list(estimates.values()))
    longest = np.nanmax([*means, *null])
    end = 1.05 * min(np.nanmax([longest, *high]), REACH * longest)
    ax.set_xlim(0, max(end, style.SMALLEST_AXIS))
    for metric, (_, low, high) in estimates.items():
        style.arrows(ax, places[metric].to_numpy(), low.clip(0), high, "black")
    ax.set_xlabel(" and ".join(map(text.name, PARTS)) + " (%)")
    handles = [Patch(facecolor=shade, label=label) for shade, label in PARTS.values()]
    return style.finished(figure, [*handles, style.null_handle()], columns=3)
