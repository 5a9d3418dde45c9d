"""A paper's declarations in its folder: tables, claims and printed figures, in three YAML files."""

import itertools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple, TypedDict

from calgrid.metrics import METRICS
from calgrid.storage.manifest import Manifest
from calgrid.study.home import home
from calgrid.study.papers import PUBLISHED, paper_folder
from calgrid.study.yaml_files import read_yaml

Value = str | int
#: some coordinates of a cell
Place = Mapping[str, Value]
#: coordinate -> a value or several, of which each combination is a place; the first coordinate
#: varies slowest
Block = Mapping[str, Value | Sequence[Value]]
#: coordinates of a cell, before a second stage becomes a method
COORDINATES = (
    *("dataset", "backbone", "method", "stage", "calibrator", "fit_on", "shift", "severity"),
    "metric",
)
#: default coordinates
DEFAULTS: Place = {
    "stage": "none",
    "calibrator": "none",
    "fit_on": "val",
    "shift": "",
    "severity": 0,
}
#: data set of cells that are means over data sets
AVERAGE = "average"
#: coordinates of a printed figure, in words, in the order of the message on missing ones
FIGURE_AXES = {
    "method": "methods",
    "calibrator": "calibrators",
    "shift": "shifts",
    "dataset": "data sets",
    "backbone": "backbones",
}


class Entry(NamedTuple):
    """A row or column: parts of its heading, shared coordinates of its cells, and whether it is of
    the study's own method or calibrator, in no table of the paper.
    """

    heading: list[str]
    where: Place
    own: bool = False


class Mean(TypedDict):
    """Cells, and the values over which ours are averaged, or other names of ours."""

    where: Place
    over: Block


@dataclass(frozen=True)
class PaperTable:
    """A printed table, or the numbers behind a figure that a claim is about: entries of
    ``tables.yaml``. A cell is a row and a column together with ``where``.

    Attributes
    ----------
    paper, id : ``fedlas``; ``table1``, or ``figure5`` for the numbers behind a figure.
    title, note : as shown; the note holds for the runs of any study.
    rows, columns : blocks, one behind the other.
    best_over : coordinates over which the best (bold) and second (underlined) cell are chosen.
    study_note : note on the runs of the paper's ``study.yaml``, shown for them only.
    where : coordinates of all cells.
    row_names : coordinates that name the rows; by default all that the rows have.
    means : cells that are means over other cells, all of which must exist, or have another name
        here. An entry that matches one of the other cells, but not the mean, applies to this cell.
    ranks : metric of a rank -> the ranked metric: the rank among the rows, averaged over the
        columns; ties share the smaller rank.
    spread : of which seeds; calibrator_seeds if a paper fits calibrators several times to one
        network. Claims about such a table are about these networks, not about other trainings.
    digits : decimals shown, by which the best is chosen.
    scale : factor of the numbers shown; by default 100 for fractions, else 1.
    names : replacements for values of coordinates in the headings.
    """

    paper: str
    id: str
    title: str
    rows: Sequence[Block]
    columns: Sequence[Block]
    best_over: Collection[str]
    note: str = ""
    study_note: str = ""
    where: Place = field(default_factory=dict)
    row_names: Sequence[str] = ()
    means: Sequence[Mean] = ()
    ranks: Mapping[str, str] = field(default_factory=dict)
    spread: Literal["seeds", "calibrator_seeds"] = "seeds"
    digits: int = 2
    scale: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def number(self) -> str:
        """Number in claims and printed numbers: ``1``, ``figure5``."""
        return self.id.removeprefix("table")

    @property
    def of_fits(self) -> bool:
        """Whether cells vary over seeds of the calibrator."""
        return self.spread == "calibrator_seeds"

    @cached_property
    def row_axes(self) -> list[str]:
        """Coordinates of the parts of a row's heading."""
        return list(self.row_names) or list(dict.fromkeys(itertools.chain(*self.rows)))

    @cached_property
    def printed_rows(self) -> list[Entry]:
        """Rows in print."""
        return self._entries(self.rows, self.row_axes)

    @cached_property
    def printed_columns(self) -> list[Entry]:
        """Columns in print."""
        return self._entries(self.columns)

    def _entries(self, blocks: Sequence[Block], axes: Sequence[str] = ()) -> list[Entry]:
        """Entries whose headings have the values of ``axes``, or else of their own coordinates."""
        entries = []
        for where in _products(blocks):
            known = {**DEFAULTS, **self.where, **where}
            values = [str(known.get(axis, "")) for axis in axes or where]
            entries.append(Entry([self.names.get(value, value) for value in values], where))
        return entries

    def cell(self, row: Entry, column: Entry) -> dict[str, Value]:
        """All coordinates of the cell in a row and column."""
        return {**DEFAULTS, **self.where, **row.where, **column.where}

    @cached_property
    def cells(self) -> list[dict[str, Value]]:
        """Coordinates of the cells in print, row by row."""
        places = itertools.product(self.printed_rows, self.printed_columns)
        return list(itertools.starmap(self.cell, places))

    def places(self, cell: Place) -> list[dict[str, Value]]:
        """Places of ours averaged by a cell, with the second stage in the method."""
        found = _expanded(cell, self.means)
        return [{**place, "method": run_method(place)} for place in found]

    def factor(self, metric: str) -> float:
        """Factor from numbers in files to numbers shown."""
        if metric in self.ranks:
            return 1.0
        share = metric in METRICS and METRICS[metric].unit == "fraction"
        return self.scale or (100.0 if share else 1.0)

    def shown(self, metric: str, value: float) -> float:
        """Value as the table shows it."""
        return float(f"{self.factor(metric) * value:.{self.digits}f}")


class Case(NamedTuple):
    """A cell, and the cells it is claimed to beat, as indices row by row."""

    cell: int
    rivals: list[int]


@dataclass(frozen=True)
class Claim:
    """A claim about cells of a table, each a case: entries ``claims`` of ``claims.yaml``.

    Attributes
    ----------
    text : the claim, paraphrased.
    table : number of the table of its cells, or figure and number.
    better, where : coordinates of these cells; each combination gives separate cases. Ranks, and
        means over data sets (`average`), are cases only if ``where`` names them.
    than : coordinates of the rivals where they differ; all rivals must exist. By default all cells
        competing for best in the table.
    at_least : number of cases in which it must hold; by default all.
    margin : if not 0, the claim is only that the cell is not worse than its rival by this margin,
        in the unit of metrics.parquet (0.01 is one percentage point).
    """

    id: str
    text: str
    table: str | int
    better: Block
    where: Place = field(default_factory=dict)
    than: Block | None = None
    at_least: int | None = None
    margin: float = 0.0

    def cases(self, table: PaperTable) -> list[Case]:
        """Cells of the table covered by the claim and with rivals."""
        wanted = [{**self.where, **better} for better in _products([self.better])]
        named = self.where.get("dataset") == AVERAGE
        found = []
        for number, cell in enumerate(table.cells):
            single = cell["metric"] not in table.ranks and cell["dataset"] != AVERAGE
            is_about = any(where.items() <= cell.items() for where in wanted)
            if (named or single) and is_about and (rivals := self._rivals(table, number)):
                found.append(Case(number, rivals))
        return found

    def _rivals(self, table: PaperTable, number: int) -> list[int]:
        mine = table.cells[number]
        if self.than is not None:
            named = [{**mine, **other} for other in _products([self.than])]
            found = [place for place, cell in enumerate(table.cells) if cell in named]
            return found if len(found) == len(named) else []
        fixed = {axis: value for axis, value in mine.items() if axis not in table.best_over}
        alike = [place for place, cell in enumerate(table.cells) if fixed.items() <= cell.items()]
        return [place for place in alike if place != number]


@dataclass(frozen=True)
class PrintedFigure:
    """A printed figure, or a part of one: entries of ``figures.yaml``.

    Attributes
    ----------
    number, shows : number in the paper with its part (2b), and the content, paraphrased.
    figure : the corresponding figure of ours; if there is none, the note explains why.
    dataset, backbone : of its runs.
    method, calibrator, shift : required ones.
    needs : data that it needs in addition to logits and histories, for the message if they are
        missing.
    note : differences between ours and the printed figure.
    """

    number: str
    shows: str
    figure: str = ""
    dataset: Sequence[str] = ()
    backbone: Sequence[str] = ()
    method: Sequence[str] = ()
    calibrator: Sequence[str] = ()
    shift: Sequence[str] = ()
    needs: str = ""
    note: str = ""


@dataclass(frozen=True)
class Paper:
    """A paper; ``unchecked`` are claims that no comparison of cells can decide, each with the
    reason; ``own_protocols``: see :func:`calgrid.study.papers.own_protocols`.
    """

    name: str
    tables: Sequence[PaperTable]
    claims: Sequence[Claim] = ()
    unchecked: Sequence[tuple[str, str]] = ()
    figures: Sequence[PrintedFigure] = ()
    own_protocols: Collection[str] = ()

    @property
    def published(self) -> Path:
        """File of the printed numbers."""
        return paper_folder(home(), self.name) / PUBLISHED


def declared(name: str, own_protocols: Collection[str] = ()) -> Paper:
    """Read the declarations in the folder of a paper."""
    folder = paper_folder(home(), name)
    tables, claims, figures = (
        read_yaml(folder / f"{file}.yaml", f"{file} of {name}")
        for file in ("tables", "claims", "figures")
    )
    for entry in figures:  # coordinates may be single values
        entry |= {axis: [entry[axis]] for axis in FIGURE_AXES if isinstance(entry.get(axis), str)}
    unchecked = [(each["text"], each["reason"]) for each in claims["unchecked"]]
    paper_tables = [PaperTable(name, **entry) for entry in tables]
    checked = [Claim(**entry) for entry in claims["claims"]]
    printed = [PrintedFigure(**entry) for entry in figures]
    return Paper(name, paper_tables, checked, unchecked, printed, own_protocols)


def papers_of(manifest: Manifest) -> list[Paper]:
    """Papers named by a study."""
    named = manifest.get("papers", ())
    return [declared(paper["name"], paper["own_protocols"]) for paper in named]


def run_method(place: Place) -> str:
    """Method of a cell, including its second stage."""
    stage, method = str(place["stage"]), str(place["method"])
    if stage == "none":
        return method
    return stage if method == "ce" else f"{stage}+{method}"


def _products(blocks: Sequence[Block]) -> Iterator[dict[str, Value]]:
    """All combinations of the coordinates of each block."""
    for block in blocks:
        values = [[each] if isinstance(each, str | int) else each for each in block.values()]
        for combination in itertools.product(*values):
            yield dict(zip(block, combination, strict=True))


def _expanded(place: Place, means: Sequence[Mean]) -> Iterator[Place]:
    """Places averaged by a place; each entry of ``means`` is applied once."""
    now = [mean for mean in means if mean["where"].items() <= place.items()]
    later = [mean for mean in means if mean not in now]
    over = {axis: values for mean in now for axis, values in mean["over"].items()}
    for values in _products([over]):
        yield from _expanded({**place, **values}, later) if over else [place]


def further(
    entries: Sequence[Entry], names: Mapping[str, Sequence[str]], axes: Sequence[str] = ()
) -> Iterator[Entry]:
    """Rows or columns for further methods and calibrators of a study, by axis, for each group of
    entries that differ only in this coordinate, if the table compares two or more.

    ``axes``: of the parts of a heading, by default of the entry.
    """
    for axis, more in names.items():
        alike: dict[tuple[tuple[str, Value], ...], list[Entry]] = {}
        is_compared = any(axis in entry.where for entry in entries) and (not axes or axis in axes)
        for entry in entries if is_compared else ():
            others = {**entry.where, axis: ""}
            alike.setdefault(tuple(sorted(others.items())), []).append(entry)
        for first, *rest in alike.values():
            for name in more if rest else ():
                parts = dict(zip(axes or first.where, first.heading, strict=True))
                where = {**first.where, axis: name}
                yield Entry([*{**parts, axis: name}.values()], where, own=True)
