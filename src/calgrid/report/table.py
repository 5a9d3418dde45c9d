"""Tables of the report: a tidy frame for the CSV file, sections of formatted cells for readers."""

import dataclasses
import functools
import math
import operator
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd

from calgrid.components.metrics import find_metric, metric_names
from calgrid.report import captions, text
from calgrid.report.study import (
    GROUP,
    STATISTICS,
    UNCONVERGED,
    Group,
    StudyData,
    among,
)
from calgrid.report.text import Markup
from calgrid.statistics.pairs import keeps_accuracy
from calgrid.storage.atomic import write_text

#: the report shows the sections of a table up to about this number of rows
SHOWN_ROWS = 1000


@dataclass(frozen=True)
class Cell:
    """A cell of a table.

    Attributes
    ----------
    text, spread : the value, and the small text beside it.
    bold, underlined : marks of the value.
    sort : number to sort by; NaN if a column of numbers has none here, None in a column of text.
    link : target of a link.
    printed : the published value, after a bar.
    difference : ours minus published.
    """

    text: str
    spread: str = ""
    bold: bool = False
    sort: float | None = None
    link: str = ""
    underlined: bool = False
    printed: "Cell | None" = None
    difference: str = ""

    def written(self, markup: Markup) -> str:
        """The cell in a format."""
        value = markup.escape(self.text)
        if self.bold:
            value = markup.bold.format(value)
        elif self.underlined:
            value = markup.underlined.format(value)
        parts = [value]
        if self.spread:
            parts.append(markup.small.format(markup.escape(self.spread)))
        if self.printed is not None:
            parts += [markup.bar, self.printed.written(markup)]
        if self.difference:
            parts.append(markup.escape(self.difference))
        return " ".join(parts).strip()

    def renamed(self, names: Mapping[str, str]) -> "Cell":
        """The cell with another text, if ``names`` has one for its text."""
        return dataclasses.replace(self, text=names.get(self.text, self.text))


@dataclass(frozen=True)
class Section:
    """Rows of a table under one heading.

    Attributes
    ----------
    ruled_row, ruled_column : first row and column behind a rule, if there is one.
    why : what the rule in front of ``ruled_row`` says.
    closed : whether the report shows the heading alone, until the reader opens it.
    """

    heading: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    ruled_row: int | None = None
    ruled_column: int | None = None
    why: str = ""
    closed: bool = False

    @property
    def numeric(self) -> list[bool]:
        """Whether each column holds numbers."""
        numeric = np.zeros(len(self.header), bool)
        for row in self.rows:
            numeric |= [cell.sort is not None for cell in row]
        return numeric.tolist()

    def chosen(self, metrics: Sequence[str], names: Mapping[str, str]) -> "Section":
        """The section with some of its metrics, all if there are none, and with other names.

        Columns of words stay. ``names`` has ids of metrics, headings and words of cells.
        """
        of_metric = {text.heading(metric): metric for metric in metric_names()}
        chosen = [heading for heading in self.header if heading not in of_metric]
        if metrics:
            chosen += among(map(text.heading, metrics), self.header)
        else:
            chosen += among(self.header, of_metric)
        renamed = dict(names)
        for heading, metric in of_metric.items():
            if metric in names:
                renamed[heading] = text.heading(metric, names[metric])
        places = list(map(self.header.index, chosen))
        header = [renamed.get(heading, heading) for heading in chosen]
        rows = []
        for row in self.rows:
            rows.append([row[place].renamed(names) for place in places])
        return dataclasses.replace(self, header=header, rows=rows)

    def with_gaps(self, lines: list[list[str]]) -> list[list[str]]:
        """Written header and rows, with a row and an empty column in the place of rules."""
        column, row = self.ruled_column, self.ruled_row
        if column is not None:
            lines = [[*line[:column], "", *line[column:]] for line in lines]
        if row is not None:
            lines = [*lines[: row + 1], [self.why, *[""] * (len(lines[0]) - 1)], *lines[row + 1 :]]
        return lines

    def written(self, markup: Markup) -> list[list[str]]:
        """Header and rows in a format."""
        write = operator.methodcaller("written", markup)
        return [
            list(map(markup.escape, self.header)),
            *(list(map(write, row)) for row in self.rows),
        ]


@dataclass(frozen=True)
class Shown:
    """View of a :class:`Table` in the report: its entry in the index of a folder.

    Attributes
    ----------
    sections, further : those that are shown, and headings of the others.
    """

    id: str
    title: str
    category: str
    caption: str
    sections: Sequence[Section]
    summary: Sequence[tuple[str, str]]
    further: Sequence[str]


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes
    ----------
    id : name of its files.
    title, caption, category : as shown; the caption states the content, the number of seeds and the
        split.
    frame : all numbers, unrounded; shares are fractions.
    sections : the same numbers, formatted.
    summary : label -> what the report says on its top about the table.
    """

    id: str
    title: str
    category: str
    caption: str
    frame: pd.DataFrame
    sections: Sequence[Section]
    summary: Sequence[tuple[str, str]] = ()

    @property
    def markdown(self) -> str:
        """The table as Markdown; the first row below a heading is the header."""
        parts = [f"# {text.markdown(self.title)}", text.markdown(self.caption)]
        for section in self.sections:
            header, *rows = section.with_gaps(section.written(text.MARKDOWN))
            lines = [f"| {' | '.join(row)} |" for row in (header, ["---"] * len(header), *rows)]
            parts += [f"## {text.markdown(section.heading)}", "\n".join(lines)]
        return "\n\n".join(parts) + "\n"

    def write(self, out: Path) -> list[Path]:
        """Write the table's files into a folder; returns their paths."""
        files = {"csv": text.csv(self.frame), "md": self.markdown, "tex": self.latex}
        paths = []
        for suffix, content in files.items():
            paths.append(Path(out, f"{self.id}.{suffix}"))
            write_text(paths[-1], content)
        return paths

    @property
    def latex(self) -> str:
        """The table in LaTeX, one tabular per section; wide ones are shrunk to the width of the
        text.
        """
        title = text.one_line(f"{self.title}: {self.caption}")
        lines = ["% \\usepackage{booktabs, adjustbox}", f"% {title}"]
        for section in self.sections:
            head, *body = [" & ".join(row) + " \\\\" for row in section.written(text.LATEX)]
            letters = ["r" if number else "l" for number in section.numeric]
            if section.ruled_row is not None:
                why = f"\\multicolumn{{{len(letters)}}}{{l}}{{{text.latex(section.why)}}} \\\\"
                body.insert(section.ruled_row, f"\\midrule {why if section.why else ''}".rstrip())
            if section.ruled_column is not None:
                letters.insert(section.ruled_column, "|")
            lines += ["", f"% {text.one_line(section.heading)}"]
            lines.append("\\noindent\\begin{adjustbox}{max width=\\textwidth}")
            lines.append(f"\\begin{{tabular}}{{{''.join(letters)}}}")
            lines += ["\\toprule", head, "\\midrule", *body, "\\bottomrule"]
            lines += ["\\end{tabular}", "\\end{adjustbox}\\par"]
        return "\n".join(lines) + "\n"

    @property
    def shown(self) -> Shown:
        """Part of the table in the report: of more than ``SHOWN_ROWS`` rows the first sections."""
        ends = np.cumsum([len(section.rows) for section in self.sections])
        count = max(int((ends <= SHOWN_ROWS).sum()), 1)
        first, others = self.sections[:count], self.sections[count:]
        further = [section.heading for section in others]
        return Shown(self.id, self.title, self.category, self.caption, first, self.summary, further)


#: headings of columns with names of methods or calibrators
NAMING = ("Method", "Against", "Calibrator")


def marked(table: Table, data: StudyData) -> Table:
    """Mark methods that see validation data during training with a dagger, calibrators with an
    unconverged fit with a double one, and both in the CSV with a column.

    Adds to the caption what the daggers mean, and the warnings about data sets.
    """
    seeing = {method: data.marked(method) for method in data.validation_methods}
    stopped = {calibrator: calibrator + UNCONVERGED for calibrator in data.unconverged}
    shown, sections = set(), []
    for section in table.sections:
        rows = list(map(list, section.rows))
        for column, heading in enumerate(section.header):
            if heading in NAMING:
                for row in rows:
                    shown.add(row[column].text)
                    row[column] = row[column].renamed({**seeing, **stopped})
        sections.append(dataclasses.replace(section, rows=rows))
    notes, frame = captions.warnings(data), table.frame
    if shown & set(seeing):
        notes.append(captions.DAGGER)
        if "method" in frame:
            frame = frame.assign(sees_validation=frame["method"].isin(data.validation_methods))
    if shown & set(stopped):
        notes.append(captions.unconverged(data))
        if "calibrator" in frame:
            frame = frame.assign(converged=~frame["calibrator"].isin(stopped))
    caption = " ".join([table.caption, *notes])
    return dataclasses.replace(table, caption=caption, frame=frame, sections=sections)


def named(table: Table, data: StudyData) -> Table:
    """The table with the names that the configuration gives to methods and calibrators; its frame
    keeps the identifiers.
    """
    if not data.names:
        return table
    sections = []
    for section in table.sections:
        rows = []
        for row in section.rows:
            rows.append([dataclasses.replace(cell, text=data.named(cell.text)) for cell in row])
        header, heading = list(map(data.named, section.header)), data.named(section.heading)
        sections.append(dataclasses.replace(section, heading=heading, header=header, rows=rows))
    title, caption = data.named(table.title), data.named(table.caption)
    summary = [(data.named(label), said) for label, said in table.summary]
    return dataclasses.replace(
        table, title=title, caption=caption, sections=sections, summary=summary
    )


def words(value: Any) -> Cell:
    """Cell of text."""
    return Cell(str(value))


def whole(value: float) -> Cell:
    """Cell of a whole number; NaN is a dash."""
    return Cell(text.NOTHING) if math.isnan(value) else Cell(f"{int(value):,}", sort=float(value))


def number(value: float, said: str, spread: str = "") -> Cell:
    """Cell of a number in its written form; NaN is a dash."""
    return Cell(text.NOTHING) if math.isnan(value) else Cell(said, spread, sort=float(value))


def seconds_cell(value: float, deviation: float = math.nan) -> Cell:
    """Cell of a duration in seconds with its standard deviation; NaN is a dash."""
    spread = "" if math.isnan(deviation) else f"± {text.seconds(deviation, like=value)}"
    return number(value, text.seconds(value), spread)


def mean_cell(
    row: pd.Series,
    name: str,
    factor: float = 100,
    decimals: int = 2,
    beside: str = "",
    signed: bool = False,
) -> Cell:
    """Cell of ``factor`` times the mean of a number, by default a fraction in percent, with its
    deviation over seeds, if any, and the text ``beside`` both. NaN is a dash.
    """
    mean, std = float(row[f"{name}_mean"]), float(row[f"{name}_std"])
    spread = "" if math.isnan(std) else f"± {text.decimal(factor * std, decimals)} "
    said = text.decimal(factor * mean, decimals, signed)
    return number(mean, said, f"{spread}{beside}".strip())


def interval_cell(row: pd.Series, metric: str, name: str = "", signed: bool = False) -> Cell:
    """Cell of a mean with its interval; NaN is a dash.

    ``name`` begins the names of its columns, by default that of the ``metric`` of its unit.
    """
    columns = (f"{name or metric}_{part}" for part in ("mean", "ci_low", "ci_high"))
    mean, low, high = (float(row[column]) for column in columns)
    said = text.format_metric(metric, mean, signed)
    return number(mean, said, text.interval(metric, low, high))


#: heading of a column -> its cell of a row
Columns = dict[str, Callable[[pd.Series], Cell]]


def calibrated_columns(data: StudyData) -> Columns:
    """Leading columns of a table of calibrators; of one network its calibrator alone."""
    columns: Columns = {
        "Method": lambda row: words(row["method"]),
        "Calibrator": lambda row: words(row["calibrator"]),
        "Seeds": lambda row: whole(row["n_seeds"]),
    }
    return {"Calibrator": columns["Calibrator"]} if data.is_single else columns


def section(heading: str, rows: pd.DataFrame, columns: Columns) -> Section:
    """Section with a line for each row."""
    lines = []
    for _, row in rows.iterrows():
        lines.append([make(row) for make in columns.values()])
    return Section(heading, list(columns), lines)


def ranked(found: Section, rows: pd.DataFrame) -> Section:
    """The section of rows of :func:`rank_rows`, with rows without a rank below a line of
    explanation.
    """
    kept = rows["keeps_accuracy"]
    if kept.all():
        return found
    best = text.format_with_unit("accuracy", rows["accuracy_mean"].max())
    why = f"Not ranked: more than 1 point and both intervals below the best accuracy, {best}."
    return dataclasses.replace(found, ruled_row=int(kept.sum()), why=why)


def metric_cell(
    row: pd.Series, metric: str, best: Container[Any] = (), ties: Container[Any] = ()
) -> Cell:
    """Cell of the mean of a metric, with its standard deviation over seeds or, for one seed, its
    bootstrap interval; ``best`` and ``ties`` have the index labels of rows to mark.
    """
    mean, std, low, high = (row[f"{metric}_{statistic}"] for statistic in STATISTICS)
    return Cell(
        text.format_metric(metric, mean),
        text.spread(metric, row["n_seeds"], std, low, high),
        bold=row.name in best,
        underlined=row.name in ties,
        sort=None if math.isnan(mean) else float(mean),
    )


def present(rows: pd.DataFrame, metrics: Iterable[str]) -> list[str]:
    """The ``metrics`` present in the wide rows."""
    return [metric for metric in metrics if f"{metric}_mean" in rows]


def best_rows(rows: pd.DataFrame, metrics: Sequence[str]) -> dict[str, set[Any]]:
    """Index labels of the rows with the best shown value of each metric, among rows that keep
    accuracy.
    """
    kept = rows[keeps_accuracy(rows)]
    best: dict[str, set[Any]] = {}
    for metric in metrics:
        best[metric] = set()
        lower = find_metric(metric).lower_is_better
        values = kept[f"{metric}_mean"].astype(float).dropna()
        if lower is None or len(values) < 2:  # a single value is not marked as best
            continue
        if lower:
            # a debiased error below 0 is not better than 0
            values = values.clip(lower=find_metric(metric).bounds[0])
        optimum = text.format_metric(metric, values.min() if lower else values.max())
        shown = values.map(functools.partial(text.format_metric, metric))
        best[metric] = set(values.index[shown == optimum])
    return best


def metric_section(
    heading: str,
    rows: pd.DataFrame,
    metrics: Sequence[str],
    lead: Columns,
    within: str | None = None,
    ties: Mapping[str, set[Any]] = MappingProxyType({}),
) -> Section:
    """Format wide rows, the best of each column in bold and its ties underlined.

    Parameters
    ----------
    metrics : metrics missing in the rows are left out.
    lead : heading -> cell of the columns before the metrics.
    within : rows are compared only with rows that have the same value in this column; None compares
        all rows.
    ties : metric -> index labels of its ties.
    """
    metrics = present(rows, metrics)
    best: dict[str, set[Any]] = defaultdict(set)
    for _, part in [("", rows)] if within is None else rows.groupby(within, sort=False):
        for metric, labels in best_rows(part, metrics).items():
            best[metric] |= labels
    columns = dict(lead)
    for metric in metrics:
        marks = {"best": best[metric], "ties": ties.get(metric, set()) - best[metric]}
        columns[text.heading(metric)] = functools.partial(metric_cell, metric=metric, **marks)
    return section(heading, rows, columns)


def grouped(
    id: str,
    title: str,
    category: str,
    groups: Iterable[Group],
    select: Callable[[Group], pd.DataFrame],
    format: Callable[[Group, pd.DataFrame], Iterable[Section]],
    caption: Callable[[pd.DataFrame], str],
    keys: Sequence[str] = GROUP,
) -> Table | None:
    """Table of the groups that have rows; None if none has any.

    Parameters
    ----------
    select : rows of a group; the frame has the columns ``keys`` of the group in front of them.
    format : sections of the rows of a group.
    caption : of the whole frame.
    """
    frames: list[pd.DataFrame] = []
    sections: list[Section] = []
    for group in groups:
        rows = select(group)
        if len(rows):
            sections += format(group, rows)
            named = rows.copy()
            for place, column in enumerate(keys):
                named.insert(place, column, getattr(group, column))
            frames.append(named)
    if not sections:
        return None
    frame = pd.concat(frames, ignore_index=True)
    return Table(id, title, category, caption(frame), frame, sections)
