"""Accuracy, ECE and NLL against a hyper-parameter (MaC-Cal, Figures 6 and 7; SMART, Tables 13 and
14).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure

from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import lines, style
from calgrid.report.settings import Kind
from calgrid.report.study import Group, StudyData, calibrated
from calgrid.report.sweeps import Sweep, calibrator_sweeps, method_sweeps

METRICS = ("accuracy", "ece", "nll")
NEEDED = (*METRICS, "ece_null")
#: styles of the lines of the calibrators of :meth:`StudyData.few_calibrators`
LINES = ("-", "--")


@dataclass(frozen=True)
class Sensitivity:
    """Methods that differ in one option, without and with a calibrator, or such calibrators on one
    method.
    """

    kind: Kind

    def collect(self, data: StudyData, group: Group) -> pd.DataFrame:
        if self.kind == "calibrator":
            rows = data.tidy(group, "test")
            own = rows[rows["method"] == data.reference(group)]
            return _points(calibrator_sweeps(data, group), own, self.kind).assign(said="")
        sweeps, parts = method_sweeps(data, group), []
        for calibrator in data.few_calibrators():
            found = _points(sweeps, data.tidy(group, "test", [calibrator]), self.kind)
            parts.append(found.assign(calibrator=calibrator, said=calibrated(calibrator)))
        return pd.concat(parts)

    def caption(self, frame: FigureData) -> str:
        data, group = frame.study, frame.group
        if self.kind == "calibrator":
            which = f"All calibrate the networks of {data.reference(group)}."
        else:
            after = [f"; dashed: {calibrated(name)}" for name in data.few_calibrators()[1:]]
            which = f"Solid: uncalibrated networks{''.join(after)}."
        return (
            f"Accuracy, ECE and NLL against a hyper-parameter, for {self.kind}s that have all "
            f"others equal, on {frame.label}, clean test split ({frame.images}); "
            f"{lines.spread(data.tidy(group, 'test'))}. {lines.NULL} Do not choose a value from "
            f"this figure: it shows the test split. {which}"
        )

    def draw(self, frame: FigureData) -> Figure:
        """Draw one row of panels per hyper-parameter."""
        rows = frame.rows
        options, said = rows["option"].unique(), rows["said"].unique().tolist()
        labels = rows["sweep"].unique().tolist()
        styles = dict(zip(said, LINES, strict=False))
        figure = style.new_figure(style.WIDTH, 2.3 * len(options) + 0.6 + 0.2 * (len(labels) // 3))
        axes = figure.subplots(len(options), len(METRICS), sharex="row", squeeze=False)
        for option, line in zip(options, axes, strict=True):
            for ax, metric in zip(line, METRICS, strict=True):
                own = rows[rows["option"] == option]
                curves = list(own.groupby(["said", "sweep"], sort=False))
                for (each, label), part in curves:
                    look = {**style.marker_look(labels, label), "linestyle": styles[each]}
                    x = part["value"].to_numpy(float)
                    lines.line(ax, x, part, metric, look, len(curves))
                lines.numeric_axis(ax, own["value"])
                if metric == "ece":
                    ax.set_ylim(bottom=0)
                ax.set_xlabel(option)
        for ax, metric in zip(axes[0], METRICS, strict=True):
            ax.set_title(text.in_unit(metric))
        looks = {label: style.marker_look(labels, label) for label in labels}
        if len(said) > 1:
            looks |= {each: {"color": style.GREY, "linestyle": styles[each]} for each in said}
        handles = [*style.handles(looks), style.null_handle(lines.NULL_TICK)]
        return style.finished(figure, handles, columns=4)


METHODS, CALIBRATORS = Sensitivity("method"), Sensitivity("calibrator")


def _points(sweeps: Iterable[Sweep], rows: pd.DataFrame, kind: str) -> pd.DataFrame:
    """One row per value of each sweep whose members were all scored: option, sweep, value, and wide
    means.
    """
    rows = rows[rows["metric"].isin(NEEDED)]
    if rows.empty:
        return pd.DataFrame()
    table = lines.means(rows, [kind]).set_index(kind)
    parts = []
    for sweep in sweeps:
        names = list(sweep.members.values())
        if set(names) <= set(table.index):
            facts = {"option": sweep.option, "sweep": sweep.label, "value": [*sweep.members]}
            parts.append(table.loc[names].assign(**facts))
    return pd.concat(parts).reset_index() if parts else pd.DataFrame()
