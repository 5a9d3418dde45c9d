"""Lists of the figures of papers: our figure of the same content, or the data that are missing to
draw it.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from calgrid.configuration.manifest import Paper, PaperFigure
from calgrid.reporting import text
from calgrid.reporting.index import PAPER_FIGURES
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import Cell, Section, Table, words

HEADER = ("Figure", "Shows", "Ours", "State")
DRAWN = "drawn"
#: missing runs are named up to this number; further ones are counted
NAMED = 4
Entry = Mapping[str, Any]


def figure_lists(data: StudyData, drawn: Sequence[Entry]) -> list[Table]:
    """Lists of the figures of the papers that the study names, one table per paper with figures.

    Their frames have ``number``, ``shows``, ``figure`` (our kind), ``file`` (empty if nothing was
    drawn) and ``state``: ``drawn``, missing runs, or missing data; one row per file, or one row for
    a figure without files.

    Parameters
    ----------
    drawn : index entries of the study's figures (see :func:`calgrid.reporting.index.read_index`).
    """
    papers = [paper for paper in data.manifest.get("papers", ()) if paper.get("figures")]
    return [_listed(data, paper, drawn) for paper in papers]


def _listed(data: StudyData, paper: Paper, drawn: Sequence[Entry]) -> Table:
    rows = [row for wanted in paper["figures"] for row in _rows(data, wanted, drawn)]
    cells = [
        [
            words(row["number"]),
            words(row["shows"]),
            Cell(row["id"] or text.NOTHING, link=f"#figure-{row['id']}" if row["id"] else ""),
            words(" ".join(filter(None, [f"{row['state']}.", row["note"]]))),
        ]
        for row in rows
    ]
    frame = pd.DataFrame(rows, columns=["number", "shows", "figure", "id", "file", "state", "note"])
    return Table(
        f"{paper['name']}_figures",
        f"Figures of {paper['name']}",
        PAPER_FIGURES,
        "Figures of the paper, paraphrased, and our figures with the same content. If a figure "
        "was not drawn, the state says what is missing: add it to the configuration of the study "
        "and run it again. Papers differ in splits, epochs and code, so curves may differ.",
        frame.drop(columns="id"),
        [Section("Printed figures and ours", HEADER, cells)],
    )


def _rows(data: StudyData, wanted: PaperFigure, drawn: Sequence[Entry]) -> Iterator[dict[str, str]]:
    """One row per file of ours that shows a figure of the paper, or one row that says why there is
    none.
    """
    row = {"figure": wanted["figure"], **{key: wanted[key] for key in ("number", "shows", "note")}}
    missing = _missing(data, wanted)
    found = [entry for entry in drawn if _shows(entry, wanted)]
    for entry in found:
        state = f"{DRAWN}; {missing}" if missing else DRAWN
        yield {**row, "id": entry["id"], "file": entry["file"], "state": state}
    if not found:
        yield {**row, "id": "", "file": "", "state": _why(wanted, missing)}


def _shows(entry: Entry, wanted: PaperFigure) -> bool:
    """Is a file of the wanted kind and about the wanted runs?"""
    return entry["figure"] == wanted["figure"] and _about(entry["place"], wanted)


def _why(wanted: PaperFigure, missing: str) -> str:
    if not wanted["figure"]:
        return "nothing to draw"
    needs = wanted["needs"] or "what it is drawn from is in none of the runs"
    return f"not drawn; {missing or f'data are missing: {needs}'}"


def _missing(data: StudyData, wanted: PaperFigure) -> str:
    """Wanted runs that the study lacks, in words; empty if it has all."""
    runs = [run for run in data.manifest["runs"] if _about(run["key"], wanted)]
    if not runs:
        axes = [wanted[axis] for axis in ("dataset", "backbone", "method") if wanted[axis]]
        return (
            f"runs are missing: {_named(['/'.join(values) for values in itertools.product(*axes)])}"
        )
    keys, families = (
        [run["key"] for run in runs],
        [family for run in runs for family in run["families"]],
    )
    # a figure may show several data sets, each with its own shift family
    parts = {
        "methods": (wanted["method"], [key["method"] for key in keys]),
        "calibrators": (wanted["calibrator"], data.calibrators),
        "shifts": (wanted["shift"], families),
        "data sets": (wanted["dataset"], [key["dataset"] for key in keys]),
        "backbones": (wanted["backbone"], [key["backbone"] for key in keys]),
    }
    absent = {
        kind: [name for name in names if name not in present]
        for kind, (names, present) in parts.items()
    }
    return "; ".join(
        f"{kind} are missing: {_named(names)}" for kind, names in absent.items() if names
    )


def _about(place: Mapping[str, Any], wanted: PaperFigure) -> bool:
    return all(
        place[axis] in wanted[axis]
        for axis in ("dataset", "backbone")
        if axis in place and wanted[axis]
    )


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
