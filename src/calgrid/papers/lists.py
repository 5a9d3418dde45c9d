"""Lists of the figures of papers: our figure of the same content, or data missing to draw it."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from calgrid.papers.declared import FIGURE_AXES, Paper, PrintedFigure, papers_of
from calgrid.report import text
from calgrid.report.index import PAPER_FIGURES, FigureEntry, read_index
from calgrid.report.study import StudyData
from calgrid.report.table import Cell, Columns, Table, section, words

COLUMNS: Columns = {
    "Figure": lambda row: words(row["number"]),
    "Shows": lambda row: words(row["shows"]),
    "Ours": lambda row: Cell(
        row["id"] or text.NOTHING, link=f"#figure-{row['id']}" if row["id"] else ""
    ),
    "State": lambda row: words(f"{row['state']}. {row['note']}".strip()),
}
DRAWN = "drawn"
#: missing runs are named up to this number; further ones are counted
NAMED = 4


def figure_lists(data: StudyData, figures: Path) -> list[Table]:
    """Lists of the figures of the papers that the study names: see :func:`figure_list`.

    Parameters
    ----------
    figures : folder of the study's figures with their index.
    """
    drawn = read_index(figures)
    return [figure_list(data, paper, drawn) for paper in papers_of(data.manifest)]


def figure_list(data: StudyData, paper: Paper, drawn: Sequence[FigureEntry]) -> Table:
    """List of the figures of a paper.

    Its frame has ``number``, ``shows``, ``figure`` (our kind), ``file`` (empty if nothing was
    drawn) and ``state``: ``drawn``, missing runs, or missing data; one row per file, or one row for
    a figure without files.

    Parameters
    ----------
    drawn : index entries of the study's figures (see :func:`calgrid.report.index.read_index`).
    """
    rows = [row for wanted in paper.figures for row in _rows(data, wanted, drawn)]
    frame = pd.DataFrame(rows, columns=["number", "shows", "figure", "id", "file", "state", "note"])
    return Table(
        f"{paper.name}_figures",
        f"Figures of {paper.name}",
        PAPER_FIGURES,
        "Figures of the paper, paraphrased, and our figures with the same content. If a figure "
        "was not drawn, the state says what is missing; add it to the configuration of the study "
        "and run it again. Papers differ in splits, epochs and code, so curves may differ.",
        frame.drop(columns="id"),
        [section("Printed figures and ours", frame, COLUMNS)],
    )


def _rows(
    data: StudyData, wanted: PrintedFigure, drawn: Sequence[FigureEntry]
) -> list[dict[str, str]]:
    """One row per file of ours with a figure of the paper, or one row with the reason for none."""
    row = {name: getattr(wanted, name) for name in ("figure", "number", "shows", "note")}
    missing = _missing(data, wanted)
    state = f"{DRAWN}; {missing}" if missing else DRAWN
    of_kind = [entry for entry in drawn if entry["figure"] == wanted.figure]
    found = [(each["id"], each["file"]) for each in of_kind if _about(each["place"], wanted)]
    if not found:
        found, state = [("", "")], "nothing to draw"
        if wanted.figure:
            needs = wanted.needs or "what it is drawn from is in none of the runs"
            state = f"not drawn; {missing or f'data are missing: {needs}'}"
    return [{**row, "id": name, "file": file, "state": state} for name, file in found]


def _missing(data: StudyData, wanted: PrintedFigure) -> str:
    """Wanted runs missing in the study, in words; empty if none is."""
    runs = [run for run in data.manifest["runs"] if _about(run["key"], wanted)]
    if not runs:
        axes = filter(None, (wanted.dataset, wanted.backbone, wanted.method))
        return f"runs are missing: {_named([*map('/'.join, itertools.product(*axes))])}"
    present: dict[str, set[str]] = {"calibrator": set(data.calibrators)}
    # a figure may show several data sets, each with its own shift family
    present["shift"] = set(itertools.chain(*(run["families"] for run in runs)))
    for axis in ("method", "dataset", "backbone"):
        present[axis] = {run["key"][axis] for run in runs}
    sentences = []
    for axis, noun in FIGURE_AXES.items():
        if absent := [name for name in getattr(wanted, axis) if name not in present[axis]]:
            sentences.append(f"{noun} are missing: {_named(absent)}")
    return "; ".join(sentences)


def _about(place: Mapping[str, object], wanted: PrintedFigure) -> bool:
    known = {"dataset": wanted.dataset, "backbone": wanted.backbone}.items()
    return all(not names or place.get(axis, names[0]) in names for axis, names in known)


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
