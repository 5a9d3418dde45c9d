"""Tables of papers: files in ``config/tables/{paper}``, checked and written out row by row and column by column."""

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrid.configuration.claims import load_claims
from calgrid.configuration.figures import load_figures
from calgrid.configuration.places import Place, cell_place, matches
from calgrid.configuration.reading import read_yaml
from calgrid.configuration.schema import fill_defaults, validate
from calgrid.errors import ConfigError, unknown_id

#: coordinates of a cell that need not be named
DEFAULTS = {"stage": "none", "calibrator": "none", "fit_on": "val", "shift": "", "severity": 0}
NEEDED = ("dataset", "backbone", "method", "metric")
#: metrics of published tables that come from ``costs.parquet``
TIMES = ("train_seconds", "runtime_seconds")


def paper(home: Path, name: str, where: str) -> dict[str, Any]:
    """Everything that the stage ``tables`` needs for the tables of a paper.

    Parameters
    ----------
    home : folder of the workflow (holds ``config`` and ``workflow/schemas``).
    name : of a folder in ``config/tables`` and a file in ``config/published``.
    where : where the configuration names it.

    Returns
    -------
    ``name``; ``published``, the path of the file with its numbers; ``tables``, in the order of their numbers, each as
    in its file, with all defaults, ``id``, ``table`` (its number), and blocks of rows and columns written out:
    ``rows`` and ``columns`` are lists of {"heading": words, "where": coordinates}, ``row_axes`` names the headings of
    the rows; ``claims``, see :func:`calgrid.configuration.claims.load_claims`; ``figures``, see
    :func:`calgrid.configuration.figures.load_figures`.

    Raises
    ------
    ConfigError : for an unknown paper or a file that does not say what its cells are.
    """
    folder = Path(home, "config", "tables")
    known = sorted(path.name for path in folder.glob("*") if path.is_dir())
    if name not in known:
        raise unknown_id("paper", name, known, where)
    published = Path(home, "config", "published", f"{name}.csv")
    if not published.is_file():
        raise ConfigError(f"{where}: '{name}' has tables but no numbers; add the file {published}.")
    paths = sorted((folder / name).glob("*.yaml"), key=_number)
    schemas = Path(home, "workflow", "schemas")
    tables = [{"id": f"{name}_{path.stem}", **load_table(path, schemas / "table.schema.yaml")} for path in paths]
    claims = Path(home, "config", "claims", f"{name}.yaml")
    found = load_claims(claims, schemas / "claims.schema.yaml", tables) if claims.is_file() else []
    figures = Path(home, "config", "figures", f"{name}.yaml")
    drawn = load_figures(figures, schemas / "figures.schema.yaml") if figures.is_file() else []
    return {"name": name, "published": str(published), "tables": tables, "claims": found, "figures": drawn}


def load_table(path: Path, schema: Path) -> dict[str, Any]:
    """Read and check one table; see :func:`paper`."""
    what = f"table {path.parent.name}/{path.name}"
    raw = read_yaml(path, what)
    validate(raw, schema, what)
    table = fill_defaults(raw, schema)
    result = {
        **{key: table[key] for key in ("title", "best_over", "digits", "spread")},
        "note": table.get("note", ""),
        "scale": table.get("scale"),
        "means": [{"where": each["where"], "over": _lists(each["over"])} for each in table.get("means", ())],
        "ranks": table.get("ranks", {}),
        "table": str(_number(path)),
        "where": {**DEFAULTS, **table.get("where", {})},
        "row_axes": table.get("row_names", list(dict.fromkeys(axis for block in table["rows"] for axis in block))),
    }
    result["rows"] = [_entry(where, result["row_axes"], table, result["where"]) for where in _products(table["rows"])]
    result["columns"] = [_entry(where, list(where), table, {}) for where in _products(table["columns"])]
    _check(result, what)
    return result


def _number(path: Path) -> int:
    found = re.fullmatch(r"table([1-9][0-9]*)", path.stem)
    if found is None:
        raise ConfigError(f"The file {path} must be named after its table, as table1.yaml.")
    return int(found[1])


def _lists(block: Mapping[str, Any]) -> dict[str, list[Any]]:
    return {axis: value if isinstance(value, list) else [value] for axis, value in block.items()}


def _products(blocks: Sequence[Mapping[str, Any]]) -> Iterator[Place]:
    for block in blocks:
        lists = _lists(block)
        yield from (dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values()))


def _entry(where: Place, axes: Sequence[str], table: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    values = [str(where.get(axis, defaults.get(axis, ""))) for axis in axes]
    return {"heading": [table["names"].get(value, value) for value in values], "where": where}


def _check(table: Mapping[str, Any], what: str) -> None:
    shared = {axis for row in table["rows"] for axis in row["where"]} & {
        axis for column in table["columns"] for axis in column["where"]
    }
    if shared:
        raise ConfigError(f"{what}: '{min(shared)}' stands in rows and in columns; leave it to one of them.")
    places = [cell_place(table, row, column) for row in table["rows"] for column in table["columns"]]
    for axis in NEEDED:
        if any(axis not in place for place in places):
            raise ConfigError(f"{what}: a cell has no '{axis}'; name it in rows, columns or where.")
    seen: set[tuple[Any, ...]] = set()
    for place in places:
        key = tuple(sorted(place.items()))
        if key in seen:
            raise ConfigError(f"{what}: the cell {', '.join(f'{a}={v}' for a, v in key if v)} is there twice.")
        seen.add(key)
    _check_metrics(table, places, what)
    for mean in table["means"]:
        if not any(matches(place, mean["where"]) for place in places):
            raise ConfigError(f"{what}: means: no cell has {mean['where']}; correct or remove the entry.")


def _check_metrics(table: Mapping[str, Any], places: Sequence[Place], what: str) -> None:
    from calgrid.metrics import METRICS  # noqa: PLC0415  (it imports SciPy, which only tables of papers need in planning)

    found = {place["metric"] for place in places}
    for metric in sorted(found):
        if metric not in METRICS and metric not in table["ranks"] and metric not in TIMES:
            raise unknown_id("metric", metric, [*METRICS, *TIMES, *table["ranks"]], what)
    for rank, ranked in table["ranks"].items():
        if not {rank, ranked} <= found:
            raise ConfigError(f"{what}: ranks: '{rank}' ranks '{ranked}', of which one is in no cell.")
