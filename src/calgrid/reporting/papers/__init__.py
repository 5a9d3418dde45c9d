"""Tables of papers with our numbers beside the published ones, in four formats."""

from collections.abc import Iterator

from calgrid.reporting.papers.cells import filled_tables
from calgrid.reporting.papers.render import PaperTable
from calgrid.reporting.study import StudyData

__all__ = ["PaperTable", "paper_tables"]


def paper_tables(data: StudyData) -> Iterator[PaperTable]:
    """Tables of the papers that the study names; none if it names none."""
    for paper in data.manifest.get("papers", ()):
        for spec, frame in filled_tables(data, paper):
            yield PaperTable(spec, frame, data.level)
