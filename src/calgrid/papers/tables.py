"""Tables of a study, with the claims and tables of its papers, ours beside the printed ones."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from calgrid.papers.cells import filled_tables
from calgrid.papers.claims import claims_table
from calgrid.papers.declared import Paper, papers_of
from calgrid.papers.render import paper_table
from calgrid.report import tables
from calgrid.report.study import StudyData
from calgrid.report.table import Table, named
from calgrid.storage.manifest import Manifest
from calgrid.storage.publish import write_part


def paper_tables(data: StudyData, papers: Sequence[Paper]) -> list[Table]:
    """Claims and tables of papers."""
    filled = [(paper, list(filled_tables(data, paper))) for paper in papers]
    checked = claims_table(data, filled)
    found = [] if checked is None else [checked]
    for paper, its_tables in filled:
        found += [paper_table(data, paper, table) for table in its_tables]
    return [named(table, data) for table in found]


def write_tables(study: Path, manifest: Manifest, out: Path) -> list[Path]:
    """Write all tables: see :func:`calgrid.report.tables.write_tables`."""
    data = StudyData(study, manifest)
    return tables.write_tables(data, out, paper_tables(data, papers_of(manifest)))


run = partial(write_part, name="tables", write=write_tables)
