"""A paper's table: our numbers with the published ones beside them."""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import pandas as pd

from calgrid.papers.cells import BEST, NUMBERS, PRINTED, SECOND, SECTION, FilledTable
from calgrid.papers.declared import COORDINATES, Paper, PaperTable
from calgrid.report import text
from calgrid.report.study import StudyData
from calgrid.report.table import Cell, Section, Table, words
from calgrid.storage.manifest import Manifest
from calgrid.storage.schema import DRAWN

AXES = {
    "dataset": "Data set",
    "backbone": "Backbone",
    "method": "Method",
    "stage": "Second stage",
    "calibrator": "Calibrator",
    "fit_on": "Fitted on",
    "shift": "Shift",
    "severity": "Severity",
    "metric": "Metric",
}
COLUMNS = [*SECTION, "row", "column", *COORDINATES, *NUMBERS, *PRINTED]
COLUMNS += ["difference", "ours_mark", "published_mark"]


def paper_table(data: StudyData, paper: Paper, table: FilledTable) -> Table:
    """A table of a paper; its frame has all numbers, unrounded: fractions, nats, seconds and ranks.

    Parameters
    ----------
    table : see :func:`calgrid.papers.cells.filled_tables`.
    """
    declared, frame = table.declared, table.frame
    places = frame.groupby(list(SECTION), sort=False)
    sections = [
        _section(table, protocol, checkpoint, part) for (protocol, checkpoint), part in places
    ]
    over = text.listed([AXES[axis].lower() for axis in declared.best_over] or ["nothing"])
    runs = _of_runs(declared, frame, data.manifest, paper)
    sentences = {
        "Ours | published (difference, ours minus published).": True,
        _small(declared, frame, data.level): True,
        f"Bold: best over {over}; underlined: second of three or more; by the digits shown, "
        "separately for ours and published.": True,
        "'of n' after a rank: n rows have all numbers.": frame["n_ranked"].any(),
        "Behind the rule (in Markdown an empty row or column): methods and calibrators of this "
        "study that no table of the paper names; they have no published numbers and no place "
        "in mean ranks, and compete for best among ours.": frame["own"].any(),
        "?: suspect published number, which is not marked.": frame["suspect"].any(),
        declared.note: declared.note,
        runs: runs,
        "Papers differ in splits, epochs, hyper-parameters and code. Read a calibration error "
        "together with accuracy, NLL and Brier score, which are in the other tables.": True,
    }
    caption = " ".join(sentence for sentence, is_true in sentences.items() if is_true)
    names = f"{paper.name}_{declared.id}", declared.title, "Published numbers"
    return Table(*names, caption, frame[COLUMNS], sections)


def _of_runs(declared: PaperTable, frame: pd.DataFrame, manifest: Manifest, paper: Paper) -> str:
    """Note on our runs in a table: the paper's study note for its own runs, else descriptions of
    the protocols of the study.
    """
    lines, protocols = manifest.get("lines", {}), manifest.get("protocols", {})
    papers_own, others = [], []
    for section in filter(None, frame["protocol"].unique()):
        of_section = [name for name in protocols if lines.get(name, name) == section]
        if of_section and set(of_section) <= {*paper.own_protocols}:
            papers_own.append(section)
        else:
            others += [f"Protocol {name}: {protocols[name]}." for name in of_section]
    said = []
    if papers_own and declared.study_note:
        said += [f"On protocol {text.listed(papers_own)}:"] if others else []
        said.append(declared.study_note)
    if others:
        others.append(
            "Hyper-parameters are those of the configuration of this study; "
            f"config/papers/{paper.name}/study.yaml has those that we take for the paper's."
        )
    return " ".join([*said, *others])


def _small(declared: PaperTable, frame: pd.DataFrame, level: float) -> str:
    """Meaning of the small text."""
    single = "for n=1, a bootstrap interval over test images, if available."
    if not declared.of_fits:
        return f"Small: {100 * level:g} % interval of the mean over n seeds; {single}"
    drawn = ""
    if frame["fit_on"].isin(DRAWN).any():
        drawn = " and, where each seed draws anew which test images fit, this draw"
    return (
        "Small: ± standard deviation over n seeds of the calibrator, also of published numbers if "
        f"known. It covers the randomness of the fit on one network{drawn}. It does not cover "
        "retraining, other images to test on, or a choice of images to fit on that all seeds "
        f"share. {single.capitalize()}"
    )


def _section(table: FilledTable, protocol: str, checkpoint: str, frame: pd.DataFrame) -> Section:
    """Cells of one protocol and checkpoint."""
    declared = table.declared
    heading = f"Protocol {protocol}, {checkpoint} checkpoint"
    if not protocol:
        heading = "Published numbers; no run of ours is here"
    header = [AXES[axis] for axis in declared.row_axes]
    behind = len(header) + len(declared.printed_columns)
    for number in sorted({*frame["column"]}):
        names = dict.fromkeys(text.name(part) for part in table.columns[number].heading if part)
        header.append(" ".join(names))
    lines = []
    for number, cells in frame.sort_values(["row", "column"]).groupby("row"):
        shown = [_cell(declared, cell) for cell in cells.to_dict("records")]
        lines.append([*map(words, table.rows[number].heading), *shown])
    below = len(declared.printed_rows)
    return Section(
        heading,
        header,
        lines,
        ruled_row=below if len(lines) > below else None,
        ruled_column=behind if len(header) > behind else None,
        closed=not protocol,
    )


def _cell(declared: PaperTable, cell: Mapping[str, Any]) -> Cell:
    """Our number, the published one and their difference."""
    number = partial(_number, declared, cell)
    printed = None
    if not math.isnan(cell["published"]):
        spread = f"± {number('published_std')}" if declared.of_fits else ""
        printed = Cell(
            number("published") + ("?" if cell["suspect"] else ""),
            spread if not math.isnan(cell["published_std"]) else "",
            bold=cell["published_mark"] == BEST,
            underlined=cell["published_mark"] == SECOND,
        )
    difference = f"({number('difference', signed=True)})"
    return Cell(
        number("ours"),
        _beside(declared, cell),
        bold=cell["ours_mark"] == BEST,
        underlined=cell["ours_mark"] == SECOND,
        sort=cell["ours"],
        printed=printed,
        difference="" if math.isnan(cell["difference"]) else difference,
    )


def _beside(declared: PaperTable, cell: Mapping[str, Any]) -> str:
    """Interval and number of seeds, or the number of ranked rows if some are missing."""
    if not math.isnan(cell["n_ranked"]):
        return f"of {cell['n_ranked']:.0f}" if cell["n_ranked"] < len(declared.printed_rows) else ""
    if math.isnan(cell["n_seeds"]):
        return ""
    low, high, std = (_number(declared, cell, name) for name in ("ci_low", "ci_high", "std"))
    spread = "" if math.isnan(cell["ci_low"]) else f"[{low}, {high}] "
    if declared.of_fits and not math.isnan(cell["std"]):
        spread = f"± {std} "
    return f"{spread}n={cell['n_seeds']:.0f}"


def _number(declared: PaperTable, cell: Mapping[str, Any], name: str, signed: bool = False) -> str:
    return text.decimal(declared.factor(cell["metric"]) * cell[name], declared.digits, signed)
