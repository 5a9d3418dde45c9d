"""Figures of a study as reproducible PNG, SVG and PDF files, and an index for the report."""

import dataclasses
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.ticker import FixedLocator

from calgrid.report.figure import FigureData, FigureKind, functions
from calgrid.report.figures import (
    conformal,
    critical_difference,
    histories,
    intervals,
    over_under,
    pareto,
    reliability,
    sensitivity,
    severity,
    survey,
)
from calgrid.report.index import write_index
from calgrid.report.plotting import style
from calgrid.report.study import StudyData
from calgrid.storage.atomic import replacing

__all__ = ["FIGURES", "FORMATS", "write_figures"]

#: suffix of a format -> metadata left out, so that the same figure has the same bytes
FORMATS = {".png": "Software", ".svg": "Date", ".pdf": "CreationDate"}


METHODS, CALIBRATORS = "Methods", "Calibrators"
#: figures of every study
FIGURES = (
    FigureKind(
        "nll_intervals", "NLL and Brier score", METHODS, *functions(intervals.NLL), column=True
    ),
    FigureKind("reliability", "Reliability diagrams", METHODS, *functions(reliability)),
    FigureKind(
        "over_under", "Over- and underconfidence", METHODS, *functions(over_under), column=True
    ),
    FigureKind(
        "sensitivity", "Hyper-parameters of methods", METHODS, *functions(sensitivity.METHODS)
    ),
    FigureKind(
        "critical_difference",
        "Critical differences of methods",
        METHODS,
        *functions(critical_difference.METHODS),
        each="study",
    ),
    FigureKind(
        "ece_intervals",
        "Calibration error and accuracy",
        CALIBRATORS,
        *functions(intervals.ECE),
        column=True,
    ),
    FigureKind(
        "survey",
        "ECE against accuracy of networks",
        CALIBRATORS,
        *functions(survey),
        each="dataset",
        column=True,
    ),
    FigureKind(
        "pareto", "NLL against the time of training", "Costs", *functions(pareto), column=True
    ),
    FigureKind(
        "calibrator_sensitivity",
        "Hyper-parameters of calibrators",
        CALIBRATORS,
        *functions(sensitivity.CALIBRATORS),
    ),
    FigureKind(
        "calibrator_critical_difference",
        "Critical differences of calibrators",
        CALIBRATORS,
        *functions(critical_difference.CALIBRATORS),
        each="study",
    ),
    FigureKind(
        "conformal", "Size and coverage of conformal sets", CALIBRATORS, *functions(conformal)
    ),
    FigureKind(
        "shift_severity", "Severity of corruptions", "Shift", *functions(severity), column=True
    ),
    FigureKind(
        "training",
        "Training curves",
        "Training",
        *functions(histories.TRAINING),
        each="setting",
        column=True,
    ),
)


def write_figures(
    data: StudyData, out: Path, kinds: Iterable[FigureKind], formats: Iterable[str]
) -> list[Path]:
    """Draw all figures with data, and write ``index.json``.

    PDFs have the width of a page of a paper (178 mm), or of one of its columns (85 mm). Returns the
    paths of the files written, the index last.

    Parameters
    ----------
    data : the study, with the files that ``aggregate`` wrote.
    out : folder for the figures.
    kinds : figures to draw, ``FIGURES`` or more.
    formats : suffixes of FORMATS; the report needs ``.png``.

    Raises
    ------
    DataError : a file of the study is missing or damaged.
    """
    entries = []
    for kind in kinds:
        for group in kind.groups(data):
            rows = kind.collect(data, group)
            if len(rows):
                frame = FigureData(data, group, rows)
                entries.append(kind.entry(frame))
                _write(kind, frame, Path(out, entries[-1]["file"]), formats)
    paths = [
        Path(out, entry["file"]).with_suffix(suffix) for entry in entries for suffix in formats
    ]
    return [*paths, write_index(out, entries)]


def _name(figure: Figure, data: StudyData) -> None:
    """Write the names that the configuration gives to methods and calibrators into a figure."""
    if not data.names:
        return
    for words in figure.findobj(Text):
        words.set_text(data.named(words.get_text()))
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            if isinstance(axis.get_major_locator(), FixedLocator):
                labels = [label.get_text() for label in axis.get_ticklabels()]
                if any(labels):  # an axis that another one labels has none
                    axis.set_ticklabels(list(map(data.named, labels)))


@mpl.rc_context(style.RC)
def _write(kind: FigureKind, frame: FigureData, path: Path, formats: Iterable[str]) -> None:
    narrow = [suffix for suffix in formats if kind.column and suffix == ".pdf"]
    wide = [suffix for suffix in formats if suffix not in narrow]
    for width, chosen in ((style.WIDTH, wide), (style.COLUMN, narrow)):
        if chosen:
            figure = kind.draw(dataclasses.replace(frame, width=width))
            _name(figure, frame.study)
            style.say_scales(figure)
        for suffix in chosen:
            facts: dict[str, Any] = {"format": suffix[1:], "metadata": {FORMATS[suffix]: None}}
            with replacing(path.with_suffix(suffix)) as temporary:
                figure.savefig(temporary, dpi=style.DPI, **facts)
            figure.set_layout_engine("none")  # the layout is computed once, for all formats
