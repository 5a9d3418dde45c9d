"""Accuracy, ECE and NLL against a hyper-parameter (MaC-Cal, Figures 6 and 7; SMART, Tables 13 and 14)."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from calgrid.reporting import text
from calgrid.reporting.families import Family, calibrator_families, method_families
from calgrid.reporting.figures import _lines, _style
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData

METRICS = ("accuracy", "ece", "nll")
NEEDED = (*METRICS, "ece_null")
#: how the calibrators of :meth:`StudyData.few_calibrators` are told apart
LINES = ("-", "--")


class Curve(NamedTuple):
    """A line of the figure: a family, the style of its line, what that says, and its means in the order of values."""

    family: Family
    style: str
    said: str
    rows: pd.DataFrame


def method_caption(data: StudyData, group: Group) -> str:
    """Say what the lines show, for methods."""
    few = [name for name in data.few_calibrators() if name != UNCALIBRATED]
    after = f"; dashed: calibrated by {few[0]}" if few else ""
    return f"{_what(data, group, 'methods')} Solid: uncalibrated networks{after}."


def calibrator_caption(data: StudyData, group: Group) -> str:
    """Say what the lines show, for calibrators."""
    return f"{_what(data, group, 'calibrators')} All calibrate the networks of {data.reference(group)}."


def _what(data: StudyData, group: Group, kind: str) -> str:
    rows = data.tidy(group, "test")
    return (
        f"Accuracy, ECE and NLL against a hyper-parameter, for {kind} that agree in all others, on "
        f"{data.label(group)}, clean test split ({data.test_samples(group):,} images); {_lines.spread(rows)}. "
        f"{_lines.NULL} A value that was chosen from this figure was chosen on the test split."
    )


def draw_methods(data: StudyData, group: Group) -> Figure | None:
    """Draw one row a hyper-parameter of the methods."""
    return _draw(list(_method_curves(data, group)))


def draw_calibrators(data: StudyData, group: Group) -> Figure | None:
    """Draw one row a hyper-parameter of the calibrators."""
    return _draw(list(_calibrator_curves(data, group)))


def _method_curves(data: StudyData, group: Group) -> Iterator[Curve]:
    families = method_families(data, group)
    for calibrator, style in zip(data.few_calibrators(), LINES, strict=False):
        said = "uncalibrated" if calibrator == UNCALIBRATED else f"calibrated by {calibrator}"
        rows = data.tidy(group, "test", [calibrator])
        yield from _curves(families, rows, "method", style, said)


def _calibrator_curves(data: StudyData, group: Group) -> Iterator[Curve]:
    rows = data.tidy(group, "test")
    yield from _curves(
        calibrator_families(data, group), rows[rows["method"] == data.reference(group)], "calibrator", "-", ""
    )


def _curves(families: Iterable[Family], rows: pd.DataFrame, kind: str, style: str, said: str) -> Iterator[Curve]:
    """Curves of the families of which all members were scored."""
    rows = rows[rows["metric"].isin(NEEDED)]
    if rows.empty:
        return
    table = _lines.means(rows, [kind]).set_index(kind)
    for family in families:
        if set(family.members.values()) <= set(table.index):
            yield Curve(family, style, said, table.loc[list(family.members.values())])


def _draw(curves: Sequence[Curve]) -> Figure | None:
    if not curves:
        return None
    options = list(dict.fromkeys(curve.family.option for curve in curves))
    labels = list(dict.fromkeys(curve.family.label for curve in curves))
    figure = _style.new_figure(_style.WIDTH, 2.3 * len(options) + 0.6 + 0.2 * (len(labels) // 3))
    axes = figure.subplots(len(options), len(METRICS), sharex="row", squeeze=False)
    for option, line in zip(options, axes, strict=True):
        own = [curve for curve in curves if curve.family.option == option]
        for ax, metric in zip(line, METRICS, strict=True):
            _panel(ax, own, metric, labels)
            ax.set_xlabel(option)
    for ax, metric in zip(axes[0], METRICS, strict=True):
        ax.set_title(text.in_unit(metric))
    handles = _handles(curves, labels)
    figure.legend(handles=handles, loc="outside upper center", ncols=min(len(handles), 4))
    return figure


def _panel(ax: Axes, curves: Sequence[Curve], metric: str, labels: Sequence[str]) -> None:
    for family, style, _, rows in curves:
        look = {
            "color": _style.colour(labels, family.label),
            "marker": _style.marker(labels, family.label),
            "linestyle": style,
        }
        _lines.line(ax, list(family.members), rows, metric, look, len(curves))
    _lines.numeric_axis(ax, [value for curve in curves for value in curve.family.members])
    if metric == "ece":
        ax.set_ylim(bottom=0)


def _handles(curves: Sequence[Curve], labels: Sequence[str]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=_style.colour(labels, label), marker=_style.marker(labels, label), label=label)
        for label in labels
    ]
    said = {curve.said: curve.style for curve in curves}
    if len(said) > 1:
        handles += [Line2D([], [], color=_style.GREY, linestyle=style, label=each) for each, style in said.items()]
    return [*handles, _lines.null_handle()]
