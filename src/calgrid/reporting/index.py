"""``index.json`` of a folder of tables or figures: title, caption and category of each, for the
report.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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


def write_index(folder: Path, entries: Sequence[Mapping[str, Any]]) -> Path:
    """Write the index of a folder; see :attr:`Table.entry` and :meth:`FigureKind.entry` for the
    entries.
    """
    path = Path(folder, FILE)
    write_json(path, list(entries))
    return path


def read_index(folder: Path) -> list[dict[str, Any]]:
    """Read the index of a folder; a missing or damaged one raises DataError."""
    return read_json(Path(folder, FILE), "index of tables or figures")
