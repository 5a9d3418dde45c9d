"""Tables, claims and figures of a paper, from its folder ``config/papers/{paper}``.

``tables/table{N}.yaml`` and ``tables/figure{N}.yaml`` (numbers behind a figure that a claim is
about), ``claims.yaml``, ``figures.yaml``, the printed numbers ``published.csv``, and the modules
that draw its figures, which ``figures.yaml`` names.
"""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from calgrid.components.validation import validated
from calgrid.configuration.manifest import CellKey, Claim, ClaimCase, DeclaredTable, Entry, Paper
from calgrid.configuration.model import Config
from calgrid.configuration.paper_model import (
    DrawnModule,
    PaperClaim,
    PaperClaims,
    PaperFigures,
    PaperTable,
)
from calgrid.configuration.yaml_files import read_yaml
from calgrid.errors import ConfigError, unknown_id

#: package with a folder for each paper; its modules are imported by name alone
PAPERS = "calgrid.papers"
#: default coordinates of a cell, and required ones
DEFAULTS = {"stage": "none", "calibrator": "none", "fit_on": "val", "shift": "", "severity": 0}
NEEDED = ("dataset", "backbone", "method", "metric")
#: data set of cells that are means over data sets
AVERAGE = "average"
#: parts of a configuration that give names a meaning
DEFINITIONS = ("datasets", "methods", "calibrators", "protocols")
#: metrics of published tables that come from ``costs.parquet``
TIMES = ("train_seconds", "runtime_seconds")


def cell_key(table: DeclaredTable, row: Entry, column: Entry) -> CellKey:
    """All coordinates of the cell in a row and column of a table."""
    return {**table["where"], **row["where"], **column["where"]}


def matches(cell: CellKey, where: CellKey) -> bool:
    """Whether a cell has the coordinates ``where``."""
    return where.items() <= cell.items()


def paper_folders(home: Path) -> dict[str, Path]:
    """Folders of all papers by their names, in alphabetical order."""
    folders = {}
    for tables in sorted(Path(home, "config", "papers").glob("*/tables")):
        folders[tables.parent.name] = tables.parent
    return folders


def paper(home: Path, name: str, where: str) -> Paper:
    """Read and check tables, claims and figures of a paper, tables in the order of their numbers.

    ``home`` has ``config``; ``where`` is the location of the name, for messages. An unknown paper
    or an invalid file raises ConfigError.
    """
    folders = paper_folders(home)
    if name not in folders:
        raise unknown_id("paper", name, list(folders), where)
    folder = folders[name]
    published, claims = folder / "published.csv", folder / "claims.yaml"
    if not published.is_file():
        raise ConfigError(
            f"{where}: '{name}' has tables but no published numbers; add the file {published}."
        )
    paths = sorted((folder / "tables").glob("*.yaml"), key=_place)
    tables = [load_table(path, name) for path in paths]
    result: Paper = {
        "name": name,
        "published": str(published),
        "tables": tables,
        "claims": [],
        "unchecked": [],
        "figures": [],
    }
    if claims.is_file():
        result["claims"], result["unchecked"] = load_claims(claims, tables)
    if (folder / "figures.yaml").is_file():
        result["figures"] = load_figures(folder / "figures.yaml")
    return result


def own_protocols(home: Path, name: str, config: Config) -> list[str]:
    """Protocols of the ``study.yaml`` of a paper that share tables as there, if a configuration
    defines all names as that file does, else none: their runs are those of the paper's study,
    except for data sets, methods and seeds that are left out or added.
    """
    path = paper_folders(home)[name] / "study.yaml"
    if not path.is_file():
        return []
    what = f"study {name}/{path.name}"
    own = validated(Config, read_yaml(path, what), what)
    for part in DEFINITIONS:
        if not getattr(own, part).items() <= getattr(config, part).items():
            return []
    if own.overrides != config.overrides:
        return []
    lines, own_lines = line_of(config), line_of(own)
    shared = set()
    for grid in own.grids:
        if lines.get(grid.protocol) == own_lines.get(grid.protocol):
            shared.add(grid.protocol)
    return sorted(shared)


def line_of(config: Config) -> dict[str, str]:
    """Protocol -> the line by which it shares tables of papers with others."""
    lines: dict[str, str] = {}
    for line, protocols in config.lines.items():
        lines.update(dict.fromkeys(protocols, line))
    return lines


# tables
# --------------------------------------------------------------------------------------------------


def load_table(path: Path, paper: str) -> DeclaredTable:
    """Read and check the file of one table of a paper."""
    what = f"table {paper}/{path.name}"
    of_figure, number = _place(path)
    table = validated(PaperTable, read_yaml(path, what), what)
    where = {**DEFAULTS, **table.where}
    row_axes: list[str] = [*table.row_names]
    if not row_axes:
        row_axes = list(dict.fromkeys(itertools.chain(*table.rows)))
    rows, columns = [], []
    for row in _products(table.rows):
        rows.append(_entry(row, row_axes, table.names, where))
    for column in _products(table.columns):
        columns.append(_entry(column, list(column), table.names, {}))
    expanded: DeclaredTable = {
        **table.model_dump(exclude={"row_names", "names"}),
        "id": f"{paper}_{path.stem}",
        "table": f"figure{number}" if of_figure else str(number),
        "where": where,
        "row_axes": row_axes,
        "rows": rows,
        "columns": columns,
    }
    _check_table(expanded, what)
    return expanded


def _place(path: Path) -> tuple[bool, int]:
    """Whether a file describes a figure, and its number; the order of the files."""
    found = re.fullmatch(r"(table|figure)([1-9][0-9]*)", path.stem)
    if found is None:
        raise ConfigError(f"The file {path} must have a name like table1.yaml or figure1.yaml.")
    return found[1] == "figure", int(found[2])


def _products(blocks: Sequence[Mapping[str, list[Any]]]) -> Iterator[CellKey]:
    """All combinations of the coordinates of each block."""
    for block in blocks:
        for values in itertools.product(*block.values()):
            yield dict(zip(block, values, strict=True))


def _entry(
    where: CellKey, axes: Sequence[str], names: Mapping[str, str], defaults: CellKey
) -> Entry:
    heading = []
    for axis in axes:
        value = str(where.get(axis, defaults.get(axis, "")))
        heading.append(names.get(value, value))
    return {"heading": heading, "where": where}


def _cells(table: DeclaredTable) -> list[CellKey]:
    """Coordinates of all cells, row by row."""
    places = itertools.product(table["rows"], table["columns"])
    return [cell_key(table, row, column) for row, column in places]


def _check_table(table: DeclaredTable, what: str) -> None:
    if "metric" in table["best_over"]:
        raise ConfigError(
            f"{what}: best_over: cells of different metrics do not compete; remove 'metric'."
        )
    for row, column in itertools.product(table["rows"], table["columns"]):
        if shared := row["where"].keys() & column["where"].keys():
            raise ConfigError(
                f"{what}: '{min(shared)}' is in rows and in columns; remove it from one of them."
            )
    cells, metrics = _cells(table), set()
    known: set[frozenset[tuple[str, Any]]] = set()
    for cell in cells:
        for axis in NEEDED:
            if axis not in cell:
                raise ConfigError(
                    f"{what}: a cell has no '{axis}'; add it to rows, columns or where."
                )
        place = frozenset(cell.items())
        if place in known:
            cell_text = ", ".join(f"{axis}={cell[axis]}" for axis in sorted(cell) if cell[axis])
            raise ConfigError(f"{what}: the cell {cell_text} appears twice; remove one.")
        known.add(place)
        metrics.add(cell["metric"])
    for mean in table["means"]:
        if not any(matches(cell, mean["where"]) for cell in cells):
            raise ConfigError(
                f"{what}: means: no cell has {mean['where']}; correct or remove the entry."
            )
    from calgrid.metrics import METRICS  # noqa: PLC0415  (it imports SciPy, which only tables of papers need in planning)

    for metric in sorted(metrics.difference(METRICS, TIMES, table["ranks"])):
        raise unknown_id("metric", metric, [*METRICS, *TIMES, *table["ranks"]], what)
    for rank, ranked in table["ranks"].items():
        if not {rank, ranked} <= metrics:
            raise ConfigError(
                f"{what}: ranks: '{rank}' or the metric '{ranked}' that it ranks is in no cell; "
                "add it."
            )


# claims
# --------------------------------------------------------------------------------------------------


def load_claims(
    path: Path, tables: Sequence[DeclaredTable]
) -> tuple[list[Claim], list[dict[str, Any]]]:
    """Read the claims of a paper: those about its tables, which are checked, and those that no
    comparison of cells can decide.
    """
    what = f"claims {path.parent.name}/{path.name}"
    content = validated(PaperClaims, read_yaml(path, what), what)
    _check_distinct([claim.id for claim in content.claims], f"{what}: the id", "rename one")
    by_number = {table["table"]: table for table in tables}
    claims = [_claim(claim, by_number, f"{what}: {claim.id}") for claim in content.claims]
    return claims, [claim.model_dump() for claim in content.unchecked]


def _check_distinct(names: Sequence[str], what: str, fix: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{what} '{name}' appears twice; {fix}.")


def _claim(claim: PaperClaim, tables: Mapping[str, DeclaredTable], where: str) -> Claim:
    table = tables.get(claim.table)
    if table is None:
        raise ConfigError(f"{where}: there is no table {claim.table}; valid: {', '.join(tables)}.")
    cells = _cells(table)
    wanted = [{**claim.where, **better} for better in _products([claim.better])]
    # ranks and means over data sets are included only if the claim names them
    named = wanted[0].get("dataset") == AVERAGE
    cases: list[ClaimCase] = []
    for number, cell in enumerate(cells):
        single = cell["metric"] not in table["ranks"] and cell["dataset"] != AVERAGE
        if (named or single) and any(matches(cell, where) for where in wanted):
            rivals = _rivals(claim, table, cells, number)
            if rivals:
                cases.append({"cell": number, "rivals": rivals})
    at_least = len(cases) if claim.at_least is None else claim.at_least
    if not 1 <= at_least <= len(cases):
        raise ConfigError(
            f"{where}: only {len(cases)} cells of table {claim.table} match and have a rival; "
            "correct where, better, than or at_least."
        )
    return {
        "id": claim.id,
        "text": claim.text,
        "table": table["id"],
        "at_least": at_least,
        "margin": claim.margin,
        "cases": cases,
    }


def _rivals(
    claim: PaperClaim, table: DeclaredTable, cells: Sequence[CellKey], number: int
) -> list[int]:
    mine = cells[number]
    if claim.than is not None:
        named = [{**mine, **other} for other in _products([claim.than])]
        found = [n for n, cell in enumerate(cells) if cell in named]
        return found if len(found) == len(named) else []
    fixed = {axis: value for axis, value in mine.items() if axis not in table["best_over"]}
    return [n for n, cell in enumerate(cells) if n != number and matches(cell, fixed)]


# figures
# --------------------------------------------------------------------------------------------------


def load_figures(path: Path) -> list[dict[str, Any]]:
    """Read and check the figures of a paper."""
    what = f"figures {path.parent.name}/{path.name}"
    entries = _figures_file(path).figures
    _check_distinct(
        [entry.number for entry in entries], f"{what}: the number", "name its part, as in '2b'"
    )
    for entry in entries:
        if not entry.figure and not entry.note:
            raise ConfigError(
                f"{what}: '{entry.number}' has no figure of ours; set 'figure', or explain it in "
                "'note'."
            )
    return [entry.model_dump() for entry in entries]


# modules
# --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PaperModules:
    """Modules of all papers by their full names, in the order of ``figures.yaml`` of each paper.

    Attributes
    ----------
    figures : module -> the figure that it draws for any study with its data.
    tables : modules that build a table of any study with its data.
    diagnostics : module that measures fitted calibrators in every job ``calibrate`` -> files that
        it makes in the folder of a study.
    """

    figures: dict[str, DrawnModule] = field(default_factory=dict)
    tables: list[str] = field(default_factory=list)
    diagnostics: dict[str, list[str]] = field(default_factory=dict)


def paper_modules(home: Path) -> PaperModules:
    """Modules that the files ``figures.yaml`` of all papers name."""
    modules = PaperModules()
    for path in figure_files(home):
        package = f"{PAPERS}.{path.parent.name}"
        content = _figures_file(path)
        for figure in content.drawn:
            modules.figures[f"{package}.{figure.id}"] = figure
        for table in content.tabulated:
            modules.tables.append(f"{package}.{table}")
        for diagnostic in content.diagnostics:
            modules.diagnostics[f"{package}.{diagnostic.module}"] = diagnostic.files
    return modules


def figure_files(home: Path) -> list[Path]:
    """The file ``figures.yaml`` of each paper that has one."""
    return sorted(Path(home, "config", "papers").glob("*/figures.yaml"))


def _figures_file(path: Path) -> PaperFigures:
    what = f"figures {path.parent.name}/{path.name}"
    return validated(PaperFigures, read_yaml(path, what), what)
