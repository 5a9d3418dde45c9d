"""Changes of the table of calibrators at its last replacement; the previous table is kept."""

import csv
import operator
from pathlib import Path

from calgrid.storage.atomic import write_text
from calgrid.storage.records import HIDDEN

#: it changes no number
NEUTRAL = True
TABLE = "tables/calibrators.csv"
BEFORE = f"{HIDDEN}/calibrators-before.csv"
KEY = ("protocol", "dataset", "backbone", "checkpoint", "method", "calibrator")
#: largest number of changes that are listed one by one
FEW = 10


def keep(study: Path) -> None:
    """Keep the table of a study before its numbers are made again."""
    if (study / TABLE).is_file():
        write_text(study / BEFORE, (study / TABLE).read_text())


def changes(study: Path) -> list[str]:
    """New, missing and moved recipes since the previous table, the largest difference first; empty
    if the table was not replaced or is equal.
    """
    if not (study / BEFORE).is_file() or not (study / TABLE).is_file():
        return []
    before, now = _means(study / BEFORE), _means(study / TABLE)
    both = now.keys() & before.keys()
    moved = {key: now[key] - before[key] for key in both if now[key] != before[key]}
    said = [f"new: {_name(key)}" for key in now if key not in before]
    said += [f"gone: {_name(key)}" for key in before if key not in now]
    for key in sorted(moved, key=lambda key: (-abs(moved[key]), key)):
        numbers = f"{before[key]:.4f} -> {now[key]:.4f} ({moved[key]:+.2g})"
        said.append(f"NLL of {_name(key)}: {numbers}")
    more = len(said) - FEW
    return [*said[:FEW], f"and {more} more"] if more > 0 else said


def _means(path: Path) -> dict[tuple[str, ...], float]:
    with path.open(newline="") as file:
        key = operator.itemgetter(*KEY)
        return {key(row): float(row["nll_mean"]) for row in csv.DictReader(file)}


def _name(key: tuple[str, ...]) -> str:
    *place, method, calibrator = key
    return f"{method} with {calibrator} ({', '.join(place)})"
