"""Tables of the papers that a study names, and what its runs say of their claims."""

from calgrid.reporting.papers.claims_table import claims_table
from calgrid.reporting.papers.filled_tables import filled_tables
from calgrid.reporting.papers.render import PaperTable
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import Table


def paper_tables(data: StudyData) -> list[PaperTable | Table]:
    """Claims and tables of the papers that the study names; none if it names none."""
    papers = [(paper, list(filled_tables(data, paper))) for paper in data.manifest.get("papers", ())]
    checked = claims_table(data, papers)
    filled: list[PaperTable | Table] = [
        PaperTable(table.spec, table.frame, data.level) for _, tables in papers for table in tables
    ]
    return filled if checked is None else [checked, *filled]
