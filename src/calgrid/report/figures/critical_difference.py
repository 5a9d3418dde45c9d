"""Critical-difference diagrams: mean ranks over settings, joined where Nemenyi's test finds no
difference.
"""

from dataclasses import dataclass

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from calgrid.metrics import METRICS
from calgrid.report import text
from calgrid.report.figure import FigureData
from calgrid.report.plotting import style
from calgrid.report.selections import Kind, on_most_rows, settings
from calgrid.report.study import Group, StudyData
from calgrid.statistics import CriticalDifference, critical_difference, nemenyi_cd

SHOWN = ("nll", "squared_ce")
#: heights of a bar, of the ruler of the critical difference and of a line, in lines of text
BAR, RULER, LINE = 0.45, 1.1, 1.0
#: largest number of ranks with a label, about
LABELS = 20
#: height of a line of text in inches
UNIT = 0.21


@dataclass(frozen=True)
class Diagrams:
    """One diagram per metric, of methods or of calibrators."""

    kind: Kind

    def collect(self, data: StudyData, group: Group) -> pd.DataFrame:
        """Tidy means of the compared names in complete settings, for metrics with two settings or
        more, if enough to separate any two names.
        """
        rows = settings(data, self.kind, SHOWN)
        parts = []
        for setting in data.settings:
            if on_most_rows(data, setting):
                part = data.select(rows, setting)
                # several methods on the same test images would not be independent settings
                if self.kind == "calibrator":
                    part = part[part["method"] == data.reference(setting)]
                parts.append(part)
        chosen, alpha = pd.concat(parts), 1 - data.level
        return pd.concat([_complete(chosen[chosen["metric"] == metric], alpha) for metric in SHOWN])

    def caption(self, frame: FigureData) -> str:
        data, shown = frame.study, _diagrams(frame)
        counts = {diagram.friedman.n_settings for diagram in shown.values()}
        metrics = text.listed(list(map(text.name, shown)))
        compared = "uncalibrated methods"
        if self.kind == "calibrator":
            methods = sorted(set(map(data.reference, data.settings)))
            compared = f"calibrators of the networks of {text.listed(methods)}"
        return (
            f"Mean rank of the {compared} over {text.listed([*map(str, sorted(counts))])} settings "
            "(protocol, data set and backbone), 1 = best, by "
            f"{metrics} on the clean test split. "
            "Means over seeds are ranked within each setting that has all names shown. CD is "
            f"Nemenyi's critical difference at level {1 - data.level:.2g}: bars join mean ranks "
            "that differ by less. It depends on the pool: adding or removing a competitor may "
            "change which others differ significantly. Friedman's test (in the form of Iman and "
            "Davenport) tests whether any mean ranks differ; if it does not reject, do not "
            "interpret the bars. A metric has no diagram if its critical difference exceeds the "
            "largest possible one: no two names could differ. Settings that share test images are "
            "not independent. Win rates, accuracy and the other metrics are in the table of mean "
            "ranks."
        )

    def draw(self, frame: FigureData) -> Figure:
        """Draw one diagram per metric."""
        shown = _diagrams(frame)
        heights = [_depth(each) + RULER + 1.5 for each in shown.values()]
        figure, axes = style.subplots(
            style.WIDTH,
            UNIT * sum(heights) + 0.7,
            len(shown),
            squeeze=False,
            gridspec_kw={"height_ratios": heights},
        )
        for ax, (metric, each) in zip(axes[:, 0], shown.items(), strict=True):
            _diagram(ax, each)
            settings, p = each.friedman.n_settings, text.p_value(each.friedman.f_p_value)
            ax.set_title(f"{text.name(metric)}, {settings} settings; Friedman p: {p}")
        return figure


METHODS, CALIBRATORS = Diagrams("method"), Diagrams("calibrator")


def _complete(rows: pd.DataFrame, alpha: float) -> pd.DataFrame:
    """Rows of settings with all compared names; no rows if the critical difference exceeds the
    largest possible one, as with two settings.
    """
    scores = rows.pivot(index="setting", columns="name", values="mean")
    complete = scores.dropna()
    if len(complete) < 2:  # drop the names that are missing in a setting, not the settings
        complete = scores.dropna(axis="columns")
    settings, names = complete.shape
    enough = settings > 1 and names > 1 and nemenyi_cd(names, settings, alpha) <= names - 1
    return rows[rows["setting"].isin(complete.index) & rows["name"].isin(complete.columns) & enough]


def _diagrams(frame: FigureData) -> dict[str, CriticalDifference]:
    """Metric -> content of its diagram."""
    found = {}
    for metric, rows in frame.rows.groupby("metric", sort=False):
        scores = rows.pivot(index="setting", columns="name", values="mean")
        lower = bool(METRICS[str(metric)].lower_is_better)
        found[str(metric)] = critical_difference(
            scores, lower_is_better=lower, alpha=1 - frame.study.level
        )
    return found


def _depth(shown: CriticalDifference) -> float:
    """Height below the axis."""
    return BAR * (len(shown.groups) + 1) + LINE * -(-len(shown.mean_ranks) // 2)


def _diagram(ax: Axes, shown: CriticalDifference) -> None:
    """Draw the axis of ranks from 1 at the left, bars and names below it, and the ruler above."""
    k = len(shown.mean_ranks)
    # with few settings the critical difference is longer than the axis
    last = max(k, 1 + shown.cd)
    room = 0.42 * (last - 1)
    ax.set(xlim=(1 - room, last + room), ylim=(_depth(shown), -RULER - 1))
    ax.set_axis_off()
    ax.plot([1, k], [0, 0], color="black", linewidth=1)
    for rank in range(1, k + 1, 1 + k // LABELS):
        ax.plot([rank, rank], [0, -0.2], color="black", linewidth=1)
        ax.text(rank, -0.3, str(rank), ha="center", va="bottom", fontsize=8)
    ruler, y = [1, 1 + shown.cd], -RULER - 0.2
    ax.plot(ruler, [y, y], color=style.GREY, linewidth=2, marker="|", gid="cd")
    ax.text(ruler[1], y, f"  CD = {shown.cd:.2f}", ha="left", va="center", color=style.GREY)
    # names next to the axis, the better half on the left, connected to their mean ranks
    for place, (name, rank) in enumerate(shown.mean_ranks.items()):
        said = f"{name} ({rank:.2f})"
        if place < -(-k // 2):
            line, end, side, said = place, 1 - 0.06 * (last - 1), "right", f"{said} "
        else:
            line, end, side, said = k - 1 - place, last + 0.06 * (last - 1), "left", f" {said}"
        y = BAR * (len(shown.groups) + 1) + LINE * (line + 0.4)
        ax.plot([rank, rank, end], [0, y, y], color=style.GREY, linewidth=0.8, gid="name")
        ax.text(end, y, said, ha=side, va="center", fontsize=8.5)
    overhang = 0.008 * (last - 1)
    bar: style.Look = {"color": "black", "linewidth": 3, "solid_capstyle": "butt", "gid": "bar"}
    for place, names in enumerate(shown.groups):
        first, end = shown.mean_ranks[[names[0], names[-1]]].to_numpy(float)
        y = BAR * (place + 1)
        ax.plot([first - overhang, end + overhang], [y, y], **bar)
