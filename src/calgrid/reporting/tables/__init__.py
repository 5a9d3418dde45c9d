"""Tables of a study: unrounded CSV files, formatted Markdown and LaTeX files, and an index for the
report.

Tables of the papers that the study names are written too, also in HTML.
"""

from collections.abc import Callable
from pathlib import Path

from calgrid.reporting.index import write_index
from calgrid.reporting.papers.claims_table import claims_table
from calgrid.reporting.papers.fedlas import indicator
from calgrid.reporting.papers.filled_tables import filled_tables
from calgrid.reporting.papers.render import PaperTable
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import Table, marked
from calgrid.reporting.tables import (
    comparison,
    costs,
    methods,
    overview,
    questions,
    ranks,
    shift,
    training_time,
    tuned,
)
from calgrid.specs import Manifest
from calgrid.storage.atomic import write_text

__all__ = ["TABLES", "write_tables"]

#: functions that build the tables; None is a table without rows, which is not written
TABLES: tuple[Callable[[StudyData], Table | None], ...] = (
    overview.overview,
    questions.comparisons,
    tuned.tuned,
    methods.methods,
    ranks.method_ranks,
    comparison.tests,
    methods.calibrators,
    ranks.calibrator_ranks,
    methods.soft_labels,
    shift.shift,
    shift.ood,
    indicator.indicator,
    costs.costs,
    training_time.training_time,
    comparison.published,
)


def paper_tables(data: StudyData) -> list[PaperTable | Table]:
    """Claims and tables of the papers that the study names."""
    papers = [
        (paper, list(filled_tables(data, paper))) for paper in data.manifest.get("papers", ())
    ]
    checked = claims_table(data, papers)
    filled = [
        PaperTable(table.spec, table.frame, data.level) for _, tables in papers for table in tables
    ]
    return [*filled] if checked is None else [checked, *filled]


def write_tables(study: Path, manifest: Manifest, out: Path) -> list[Path]:
    """Write all tables that have rows, and ``index.json``.

    Returns the paths of the files written, the index last. Raises DataError: a file of the study is
    missing or damaged.
    """
    data = StudyData(study, manifest)
    tables: list[Table | PaperTable] = [
        marked(built, data) for build in TABLES if (built := build(data)) is not None
    ]
    tables = [*tables, *paper_tables(data)]
    paths = []
    for table in tables:
        for suffix, content in table.files.items():
            paths.append(Path(out, f"{table.id}.{suffix}"))
            write_text(paths[-1], content)
    return [*paths, write_index(out, [table.entry for table in tables])]
