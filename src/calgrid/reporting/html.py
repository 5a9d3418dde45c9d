"""The report: one self-contained HTML file with the tables, the figures and the findings."""

import base64
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup, escape

from calgrid import __version__
from calgrid.configuration.manifest import Manifest
from calgrid.reporting import captions, text
from calgrid.reporting.findings import findings
from calgrid.reporting.index import CATEGORIES, PAPER_FIGURES, SUMMARY, read_index
from calgrid.reporting.provenance import provenance
from calgrid.reporting.published.figures import figure_lists
from calgrid.reporting.study import UNCALIBRATED, Group, StudyData
from calgrid.reporting.tables import questions
from calgrid.storage.atomic import write_text
from calgrid.storage.records import summary_record

TEMPLATE = "report.html.j2"
#: kind of the figure shown in the summary
HEADLINE = "ece_intervals"
#: number of figures of a kind that are embedded; further ones are linked
SHOWN_FIGURES = 8
#: header of the table of what was run
GRID = (
    "Data set, backbone",
    "Protocol",
    "Checkpoint",
    "Methods",
    "Seeds",
    "Calibrators",
    "Shifts",
    "Test images",
)


def write_report(study: Path, manifest: Manifest, out: Path) -> None:
    """Write the report of a study.

    Raises DataError: a file of the study, an index or a figure is missing or damaged.

    Parameters
    ----------
    study : folder with the aggregates, and with ``tables/`` and ``figures/`` as their stages wrote
        them.
    manifest : manifest of the study (``calgrid.configuration.plan.Plan.manifest``).
    out : the HTML file.
    """
    data = StudyData(study, manifest)
    tables, figures = _index(data)
    # the first figure of the study if it has none of this kind
    headline = next(
        (entry for entry in figures if entry["figure"] == HEADLINE), figures[0] if figures else None
    )
    context = {
        "study": manifest["study"],
        "version": __version__,
        "facts": facts_of(data),
        "reading": captions.reading(data),
        "grid_header": GRID,
        "grid": [_grid_row(data, group) for group in data.groups],
        "findings": [(data.label(group), findings(data, group)) for group in data.groups],
        "questions": _questions(tables),
        "answers": [entry for entry in tables if entry["category"] == SUMMARY],
        "headline": headline,
        "sections": _sections(tables, [entry for entry in figures if entry is not headline]),
        "paper_figures": PAPER_FIGURES,
        "provenance": provenance(data),
    }
    write_text(out, template(TEMPLATE).render(context))


def template(name: str) -> jinja2.Template:
    """A template of this folder, in which text is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    environment.filters["unbroken"] = _unbroken
    environment.filters["slug"] = lambda name: re.sub(r"[^a-z0-9]+", "-", name.lower())
    return environment.get_template(name)


def _code(sentence: str) -> Markup:
    """Set text in backticks as code, and keep numbers with their units."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_unbroken(sentence)))))


#: a space in front of a unit or p-value, after a sign, and within an interval
TOGETHER = re.compile(
    r"(?<=\d) (?=%)|(?<=\bp) (?=[\d<])|(?<=[<±]) (?=\d)|(?<=\d;) (?=[\d<])"
    r"|(?<=tie,) (?=\d)|(?<=\d,) (?=[\d+-][\d.]*\])"
)


def _unbroken(words: str) -> str:
    """Keep numbers that belong together, or to a unit, in one line."""
    return TOGETHER.sub("\N{NO-BREAK SPACE}", words)


def facts_of(data: StudyData) -> list[str]:
    """What a study holds, in numbers."""
    runs = data.manifest["runs"]
    keys: list[Mapping[str, object]] = [run["key"] for run in runs]
    names = {"dataset": "data set", "backbone": "backbone", "method": "method", "seed": "seed"}
    sizes = [text.count(len({key[name] for key in keys}), noun) for name, noun in names.items()]
    calibrators = len([name for name in data.calibrators if name != UNCALIBRATED])
    external = sum(run["external"] for run in runs)
    brought = f", {external} of them from external logits" if external else ""
    return [text.count(len(runs), "run") + brought, *sizes, text.count(calibrators, "calibrator")]


def _grid_row(data: StudyData, group: Group) -> list[str]:
    """Row of the table of what was run: cells of ``GRID``."""
    runs = data.runs(group)
    fitted = set(data.tidy(group, "test")["calibrator"])
    return [
        data.label(group),
        group.protocol,
        group.checkpoint,
        ", ".join(dict.fromkeys(data.marked(run["key"]["method"]) for run in runs)),
        ", ".join(str(seed) for seed in sorted({run["key"]["seed"] for run in runs})),
        ", ".join(name for name in data.calibrators if name in fitted),
        ", ".join(dict.fromkeys(family for run in runs for family in run["families"])) or "none",
        f"{data.test_samples(group):,}",
    ]


def _index(data: StudyData) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Entries of the tables and figures as their stages wrote them, figures with their content in
    base64.
    """
    study = data.folder
    for name in ("figures", "tables"):
        if (record := summary_record(study, name)) is not None:
            record.verify()
    drawn = read_index(study / "figures")
    tables = [*read_index(study / "tables"), *(table.entry for table in figure_lists(data, drawn))]
    for part in (part for table in tables for part in table["sections"]):
        part["numeric"] = [
            any(cell["sort"] is not None for cell in column)
            for column in zip(*part["rows"], strict=True)
        ]
    kinds: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for entry in drawn:
        kinds[entry["figure"]].append(entry)
    for entry in (entry for alike in kinds.values() for entry in alike[:SHOWN_FIGURES]):
        entry["data"] = base64.b64encode((study / "figures" / entry["file"]).read_bytes()).decode()
    return tables, drawn


def _questions(tables: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[str, str]]]:
    """What was compared and the answer in words, by question; their table has the numbers."""
    found: dict[str, list[tuple[str, str]]] = {}
    parts = [part for table in tables if table["id"] == questions.ID for part in table["sections"]]
    for part in parts:
        for row in part["rows"]:
            question, method, calibrator, against, _, answer = (
                cell["text"] for cell in row[: len(questions.WORDS)]
            )
            compared = f"{method} with {calibrator}, against {against}"
            if len(parts) > 1:
                compared = f"{part['heading']}: {compared}"
            found.setdefault(question, []).append((compared, answer))
    return found


def _sections(
    tables: Sequence[Mapping[str, Any]], figures: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Tables and figures by category, without empty categories."""
    sections = [
        {
            "title": category,
            "tables": [entry for entry in tables if entry["category"] == category],
            "figures": [
                entry for entry in figures if entry["category"] == category and "data" in entry
            ],
            "further": [
                entry for entry in figures if entry["category"] == category and "data" not in entry
            ],
        }
        for category in CATEGORIES
    ]
    return [section for section in sections if section["tables"] or section["figures"]]
