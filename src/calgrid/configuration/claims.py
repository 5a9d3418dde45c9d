"""Claims of papers: files ``config/claims/{paper}.yaml``, checked and written out as pairs of cells."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrid.configuration.places import Place, cell_place, matches
from calgrid.configuration.reading import read_yaml
from calgrid.configuration.schema import validate
from calgrid.errors import ConfigError


def load_claims(path: Path, schema: Path, tables: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Read and check the claims of a paper.

    Parameters
    ----------
    path, schema : the file and its schema.
    tables : the paper's tables (see :func:`calgrid.configuration.tables.paper`).

    Returns
    -------
    Each claim with ``id``, ``text``, ``table`` (the table's ``id``), ``at_least``, ``margin`` (0 where a difference is
    claimed), and ``settings``: a list of {"cell": number, "rivals": [numbers]}; cells are numbered row by row.

    Raises
    ------
    ConfigError : for a file that does not follow the schema, or a claim about no cell.
    """
    what = f"claims {path.name}"
    raw = read_yaml(path, what)
    validate(raw, schema, what)
    seen: set[str] = set()
    for claim in raw["claims"]:
        if claim["id"] in seen:
            raise ConfigError(f"{what}: the id '{claim['id']}' is there twice; rename one.")
        seen.add(claim["id"])
    by_number = {table["table"]: table for table in tables}
    return [_resolved(claim, by_number, f"{what}: {claim['id']}") for claim in raw["claims"]]


def _resolved(claim: Mapping[str, Any], tables: Mapping[str, Mapping[str, Any]], where: str) -> dict[str, Any]:
    table = tables.get(str(claim["table"]))
    if table is None:
        raise ConfigError(f"{where}: there is no table {claim['table']}; valid: {', '.join(tables)}.")
    places = [cell_place(table, row, column) for row, column in itertools.product(table["rows"], table["columns"])]
    wanted = {**claim.get("where", {}), **claim["better"]}
    if not set(wanted) <= set(places[0]):
        raise ConfigError(f"{where}: cells have no coordinate '{min(set(wanted) - set(places[0]))}'.")
    # what is said of cells is not said of ranks and means over them
    single = [at["metric"] not in table["ranks"] and at["dataset"] != "average" for at in places]
    numbers = [n for n, at in enumerate(places) if single[n] and matches(at, wanted)]
    settings = [{"cell": n, "rivals": _rivals(claim, table, places, n)} for n in numbers]
    settings = [setting for setting in settings if setting["rivals"]]
    at_least = claim.get("at_least", len(settings))
    if not 1 <= at_least <= len(settings):
        raise ConfigError(
            f"{where}: {len(settings)} cells of table {claim['table']} match and have a rival, which is too few; "
            "correct where, better, than or at_least."
        )
    kept = {key: claim[key] for key in ("id", "text")}
    return {
        **kept,
        "table": table["id"],
        "at_least": at_least,
        "margin": claim.get("margin", 0.0),
        "settings": settings,
    }


def _rivals(claim: Mapping[str, Any], table: Mapping[str, Any], places: Sequence[Place], number: int) -> list[int]:
    mine = places[number]
    if "than" in claim:
        lists = {axis: value if isinstance(value, list) else [value] for axis, value in claim["than"].items()}
        named = [{**mine, **dict(zip(lists, values, strict=True))} for values in itertools.product(*lists.values())]
        found = [n for n, place in enumerate(places) if place in named]
        return found if len(found) == len(named) else []
    fixed = {axis: value for axis, value in mine.items() if axis not in table["best_over"]}
    return [n for n, place in enumerate(places) if n != number and matches(place, fixed)]
