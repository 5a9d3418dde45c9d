"""Accuracy, NLL and ECE against the severity of corruptions."""

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import captions, text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.study import Group, StudyData, among, calibrated

METRICS = ("accuracy", "nll", "ece")


def collect(data: StudyData, group: Group) -> pd.DataFrame:
    """Wide rows of the clean test split (severity 0), and means over corruptions by severity."""
    rows = data.shift_means(group)
    rows = pd.concat(
        [data.test(group).assign(severity=0), rows[rows["severity"] > 0]], ignore_index=True
    )
    return rows if rows["severity"].max() > 0 else rows.iloc[:0]


def caption(frame: FigureData) -> str:
    rows = frame.rows[frame.rows["severity"] > 0]
    shifts = int(rows["n_shifts"].max())
    bands = " Bands: ± one standard deviation over seeds." if rows["n_seeds"].max() > 1 else ""
    return (
        f"Accuracy, NLL and ECE on {frame.label} against the severity of "
        f"{text.count(shifts, 'corruption')}: corruptions are scored separately, then averaged "
        f"({captions.seeds(rows)}). Severity 0 is the clean test split. Calibrators were fitted on "
        f"clean val.{bands}"
    )


def draw(frame: FigureData) -> Figure:
    """Draw one line per method; one column for uncalibrated networks and one for a calibrator."""
    rows, methods = frame.rows, frame.methods()
    shown = among(frame.study.few_calibrators(), rows["calibrator"])
    figure, axes = style.subplots(
        frame.width, 7.0, len(METRICS), len(shown), sharex=True, sharey="row", squeeze=False
    )
    for column, calibrator in zip(axes.T, shown, strict=True):
        part = rows[rows["calibrator"] == calibrator]
        severities = sorted(part["severity"].unique())
        for ax, metric in zip(column, METRICS, strict=True):
            for method in methods:
                own = part[part["method"] == method].sort_values("severity")
                mean, std = style.statistic(own, metric), style.statistic(own, metric, "std")
                look = style.line_look(frame.study.methods, method)
                ax.plot(own["severity"], mean, marker="o", markersize=3, **look)
                style.band(ax, own["severity"], mean - std, mean + std, look["color"])
            ax.set_xticks(severities, [f"{severity:g}" for severity in severities])
            if metric == "accuracy":
                ax.set_ylim(max(0, 100 * part["accuracy_mean"].min() // 10 * 10 - 10), 100)
            else:
                ax.set_ylim(bottom=0)
        column[0].set_title(calibrated(calibrator))
        column[-1].set_xlabel("Severity")
    for ax, metric in zip(axes[:, 0], METRICS, strict=True):
        ax.set_ylabel(text.in_unit(metric))
    style.legend_beside(figure, {"method": style.line_handles(frame.study.methods, methods)})
    return figure
