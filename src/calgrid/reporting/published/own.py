"""Rows and columns of a paper's table for methods and calibrators of a study that no table of the
paper names.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from calgrid.configuration.manifest import DeclaredTable, Entry
from calgrid.reporting.study import StudyData
from calgrid.storage.schema import METRICS


class Own(NamedTuple):
    """Rows below and columns behind those of the paper."""

    rows: list[Entry]
    columns: list[Entry]


def own_names(data: StudyData, named: Mapping[str, Collection[str]]) -> dict[str, list[str]]:
    """Methods and calibrators with results, by axis, without those that a paper has ``named``."""
    own = {}
    for axis, known in named.items():
        found = data.distinct(METRICS, [axis])[axis].astype(str)
        own[axis] = [name for name in found if name not in known]
    return own


def own_entries(declared: DeclaredTable, own: Mapping[str, Sequence[str]]) -> Own:
    """Rows and columns for names of :func:`own_names`.

    A table that compares two or more methods, or calibrators, has them also for each further one:
    a row or column beside all that differ in this coordinate alone.
    """
    rows = _further(declared["rows"], own, declared["row_axes"])
    return Own(list(rows), list(_further(declared["columns"], own, [])))


def _further(
    entries: Sequence[Entry], own: Mapping[str, Sequence[str]], axes: Sequence[str]
) -> Iterator[Entry]:
    """Further entries; ``axes`` are those of the parts of a heading, or else those of the entry."""
    for axis, names in own.items():
        if not any(axis in entry["where"] for entry in entries) or (axes and axis not in axes):
            continue
        alike: dict[tuple[tuple[str, object], ...], list[Entry]] = defaultdict(list)
        for entry in entries:
            others = {**entry["where"], axis: ""}
            alike[tuple(sorted(others.items()))].append(entry)
        for family in alike.values():
            if len(family) > 1:
                for name in names:
                    yield _renamed(family[0], axis, name, axes)


def _renamed(entry: Entry, axis: str, name: str, axes: Sequence[str]) -> Entry:
    """An entry with another method or calibrator."""
    parts = dict(zip(axes or entry["where"], entry["heading"], strict=True))
    heading = {**parts, axis: name}
    return {"heading": list(heading.values()), "where": {**entry["where"], axis: name}}
