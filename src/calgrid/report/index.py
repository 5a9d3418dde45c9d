"""``index.json`` of a folder of tables or figures: title, caption and category of each, for the
report.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NotRequired, TypedDict

from calgrid.storage.atomic import read_json, write_json

#: category of tables shown above all sections
SUMMARY = "Summary"
#: section of figures of a single seed or a few images
APPENDIX = "Appendix"
#: section with the lists of figures of papers
PAPER_FIGURES = "Figures of papers"
#: sections of the report, in order
CATEGORIES = (
    "Methods",
    "Calibrators",
    "Shift",
    "Out of distribution",
    "Training",
    "Probes",
    "Costs",
    "Published numbers",
    PAPER_FIGURES,
    APPENDIX,
)
FILE = "index.json"


class CellEntry(TypedDict):
    """A :class:`calgrid.report.table.Cell`."""

    text: str
    spread: str
    bold: bool
    underlined: bool
    sort: float | None
    link: str
    printed: "CellEntry | None"
    difference: str


class SectionEntry(TypedDict):
    """A :class:`calgrid.report.table.Section`; ``numeric``: whether each column holds numbers."""

    heading: str
    header: Sequence[str]
    numeric: list[bool]
    rows: list[list[CellEntry]]
    ruled_row: int | None
    ruled_column: int | None
    why: str
    closed: bool


class TableEntry(TypedDict):
    """A table: names of its files, sections that the report shows, headings of further ones, and
    what it says of the table on its top.
    """

    id: str
    title: str
    category: str
    caption: str
    csv: str
    markdown: str
    summary: Sequence[tuple[str, str]]
    sections: list[SectionEntry]
    further: list[str]


class FigureEntry(TypedDict):
    """A figure: the id of its kind, the part of the study that is shown, and whether it has
    photographs, which keep their colours on a dark page. The report adds its content in base64.
    """

    id: str
    file: str
    title: str
    caption: str
    category: str
    figure: str
    place: dict[str, str]
    photographs: bool
    data: NotRequired[str]


def write_index(folder: Path, entries: Sequence[TableEntry | FigureEntry]) -> Path:
    """Write the index of a folder."""
    path = Path(folder, FILE)
    write_json(path, list(entries))
    return path


def read_index(folder: Path) -> list[Any]:
    """Read the index of a folder; a missing or damaged one raises DataError."""
    return read_json(Path(folder, FILE), "index of tables or figures")
