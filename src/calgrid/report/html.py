"""The report: one self-contained HTML file with the tables, the figures and the findings."""

import base64
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import jinja2
from markupsafe import Markup, escape
from pydantic import TypeAdapter

from calgrid import __version__
from calgrid.report import captions, text
from calgrid.report.findings import findings, recommendation
from calgrid.report.index import (
    CATEGORIES,
    PAPER_FIGURES,
    SUMMARY,
    FigureEntry,
    read_index,
)
from calgrid.report.provenance import provenance
from calgrid.report.study import UNCALIBRATED, Group, StudyData, among
from calgrid.report.table import Shown, Table
from calgrid.report.tables import comparison
from calgrid.storage.atomic import write_text
from calgrid.storage.records import summary_record

#: kind of the figure shown in the summary
HEADLINE = "ece_intervals"
#: number of groups whose recommendation is on the top of the report; of others it is a finding
SHOWN_ADVICE = 4
#: number of figures of a kind that are embedded; further ones are linked
SHOWN_FIGURES = 8
#: columns of the table of runs without meaning for one network
OF_SEVERAL = ("Protocol", "Checkpoint", "Methods", "Seeds")
#: a space in front of a unit or p-value, and after a sign
TOGETHER = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[\d<])|(?<=[<±]) (?=\d)")


def write_report(
    data: StudyData, out: Path, further: Callable[[StudyData, Path], Iterable[Table]]
) -> None:
    """Write the report of a study.

    Parameters
    ----------
    data : a study with ``tables/`` and ``figures/`` as their jobs wrote them.
    out : the HTML file.
    further : tables from the study and the folder of its figures, behind those of the jobs.

    Raises
    ------
    DataError : a file of the study, an index or a figure is missing or damaged.
    """
    tables, figures = _index(data)
    tables += [table.shown for table in further(data, data.folder / "figures")]
    # the first figure of the study if it has none of this kind
    candidates = [entry for entry in figures if entry["figure"] == HEADLINE] or figures
    headline = candidates[0] if candidates else None
    others = [entry for entry in figures if entry is not headline]
    grid, groups = [], []
    advice: list[tuple[str, list[str]]] = []
    for group in data.groups:
        grid.append(_grid_row(data, group))
        label, said = data.label(group), recommendation(data, group)
        if len(advice) < SHOWN_ADVICE and said:
            advice.append((label, list(map(data.named, said))))
            said = []
        groups.append((label, list(map(data.named, [*said, *findings(data, group)]))))
    used = [table.category for table in tables]
    used += [figure["category"] for figure in others]
    context = {
        "study": data.manifest["configuration"]["study"],
        "version": __version__,
        "facts": facts_of(data),
        "reading": captions.reading(data),
        "grid_header": list(grid[0]),
        "grid": [list(row.values()) for row in grid],
        "findings": groups,
        "advice": advice,
        "questions": _questions(data, tables),
        "level": f"{100 * data.level:g} %",
        "summary": SUMMARY,
        "tables": tables,
        "figures": others,
        "headline": headline,
        "categories": among(CATEGORIES, used),
        "paper_figures": PAPER_FIGURES,
        "provenance": provenance(data),
    }
    write_text(out, _template().render(context))


def facts_of(data: StudyData) -> list[str]:
    """Summary of a study in numbers."""
    runs, calibrators = data.manifest["runs"], len(data.calibrators) - 1  # all but none
    if data.is_single:
        return ["1 network", text.count(calibrators, "calibrator")]
    facts = [text.count(len(runs), "run")]
    if external := sum(run["external"] for run in runs):
        facts[0] += f", {external} of them from external logits"
    names = {"dataset": "data set", "backbone": "backbone", "method": "method", "seed": "seed"}
    facts += [text.count(data.keys[name].nunique(), noun) for name, noun in names.items()]
    return [*facts, text.count(calibrators, "calibrator")]


def _grid_row(data: StudyData, group: Group) -> dict[str, str]:
    """Heading -> cell of the row of a group in the table of runs."""
    keys = data.keys_of(group)
    families = [family for run in data.runs(group) for family in run["families"]]
    calibrators = among(data.calibrators, data.tidy(group, "test")["calibrator"])
    row = {
        "Data set, backbone": data.label(group),
        "Protocol": group.protocol,
        "Checkpoint": group.checkpoint,
        "Methods": data.named(", ".join(map(data.marked, keys["method"].unique()))),
        "Seeds": ", ".join(map(str, sorted(keys["seed"].unique()))),
        "Calibrators": data.named(", ".join(calibrators)),
        "Shifts": ", ".join(dict.fromkeys(families)) or "none",
        "Test images": f"{data.test_samples(group):,}",
    }
    hidden = OF_SEVERAL if data.is_single else ()
    return {heading: cell for heading, cell in row.items() if heading not in hidden}


def _index(data: StudyData) -> tuple[list[Shown], list[FigureEntry]]:
    """Tables and figures as their jobs wrote them, figures with their content in base64."""
    study = data.folder
    for name in ("figures", "tables"):
        if (record := summary_record(study, name)) is not None:
            record.verify()
    drawn: list[FigureEntry] = read_index(study / "figures")
    shown: Counter[str] = Counter()
    for entry in drawn:
        shown[entry["figure"]] += 1
        if shown[entry["figure"]] <= SHOWN_FIGURES:
            content = (study / "figures" / entry["file"]).read_bytes()
            entry["data"] = base64.b64encode(content).decode()
    tables = read_index(study / "tables")
    return TypeAdapter(list[Shown]).validate_python(tables), drawn


def _questions(data: StudyData, tables: Sequence[Shown]) -> dict[str, dict[str, list[str]]]:
    """Question -> compared names -> answers in words; their table has the numbers."""
    of_calibrators = {
        data.named(asked["question"]) for asked in data.comparisons if "calibrator" in asked
    }
    found: dict[str, dict[str, list[str]]] = {}
    parts = [part for table in tables if table.id == comparison.ID for part in table.sections]
    for part in parts:
        for row in part.rows:
            question, method, calibrator, against, _, answer = (
                cell.text for cell in row[: len(comparison.WORDS)]
            )
            compared = f"{method} against {against}"
            when = f"After {calibrator}, "
            if question in of_calibrators:
                compared, when = f"{calibrator} against {against}, networks of {method}", ""
            elif calibrator == data.named(UNCALIBRATED):
                when = "Before calibration, "
            if len(parts) > 1:
                compared = f"{part.heading}: {compared}"
            said = f"{when}{answer}."
            answers = found.setdefault(question, {}).setdefault(compared, [])
            answers.append(said[0].upper() + said[1:])
    return found


def _template() -> jinja2.Template:
    """The template of the report; text in it is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["code"] = _code
    environment.filters["folded"] = captions.folded
    environment.filters["unbroken"] = _unbroken
    environment.filters["slug"] = lambda name: re.sub(r"[^a-z0-9]+", "-", name.lower())
    return environment.get_template("report.html.j2")


def _code(sentence: str) -> Markup:
    """Set text in backticks as code, and keep numbers with their units."""
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(_unbroken(sentence)))))


def _unbroken(words: str) -> str:
    """Keep numbers and their signs and units in one line; intervals may be broken on paper."""
    return TOGETHER.sub("\N{NO-BREAK SPACE}", words)
