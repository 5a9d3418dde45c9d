"""``index.json`` of a folder of tables or figures: title, caption and category of each, for the
report.
"""

from collections.abc import Mapping, Sequence
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


class FigureEntry(TypedDict):
    """A figure: the id of its kind, its part of the study, and whether it has photographs, which
    keep their colours on a dark page. The report adds its content in base64.
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


def write_index(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Write the index of a folder."""
    path = Path(folder, FILE)
    write_json(path, list(entries))
    return path


def read_index(folder: Path) -> list[Any]:
    """Read the index of a folder; a missing or damaged one raises DataError."""
    return read_json(Path(folder, FILE), "index of tables or figures")
