"""``index.json`` of tables and figures: title, caption and category of each, which the report reads."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from calgrid.storage.atomic import read_json, write_json

#: shown above all sections
SUMMARY = "Summary"
#: section for content about a single seed or a single image
APPENDIX = "Appendix"
#: section with the lists of printed figures
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
    """Write the index of a folder; each entry has id, title, caption, category and what its kind adds."""
    path = Path(folder, FILE)
    write_json(path, list(entries))
    return path


def read_index(folder: Path) -> list[dict[str, Any]]:
    """Read the index of a folder; a missing or damaged one raises DataError."""
    return read_json(Path(folder, FILE), "index of tables or figures")
