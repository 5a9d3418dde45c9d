"""Tables of a study: unrounded CSV files, formatted Markdown and LaTeX files, and an index for the
report.

Tables of the papers that the study names are written too, also in HTML.
"""

import importlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from calgrid.configuration.home import home
from calgrid.configuration.manifest import Manifest
from calgrid.configuration.papers import paper_modules
from calgrid.reporting.index import write_index
from calgrid.reporting.published.cells import filled_tables
from calgrid.reporting.published.claims import claims_table
from calgrid.reporting.published.declared import Paper, papers_of
from calgrid.reporting.published.render import paper_table
from calgrid.reporting.study import StudyData
from calgrid.reporting.table import Table, marked, named
from calgrid.reporting.tables import (
    class_groups,
    classes,
    comparison,
    conformal,
    costs,
    methods,
    overview,
    questions,
    ranks,
    shift,
    training_time,
    tuned,
)

__all__ = ["TABLES", "built", "table_builders", "write_tables"]

#: builds a table; None is a table without rows, which is not written
Builder = Callable[[StudyData], Table | None]
#: tables of every study; :func:`table_builders` adds those of papers
TABLES: tuple[Builder, ...] = (
    overview.overview,
    questions.comparisons,
    tuned.tuned,
    methods.methods,
    ranks.method_ranks,
    comparison.tests,
    methods.calibrators,
    ranks.calibrator_ranks,
    methods.parts,
    methods.soft_labels,
    class_groups.class_groups,
    classes.classes,
    shift.shift,
    shift.ood,
    shift.ood_scores,
    conformal.conformal,
    costs.costs,
    training_time.training_time,
    comparison.published,
)


def table_builders() -> tuple[Builder, ...]:
    """All builders: ``TABLES``, and the functions ``table`` of modules of papers."""
    modules = map(importlib.import_module, paper_modules(home()).tables)
    return (*TABLES, *(module.table for module in modules))


def built(data: StudyData, builders: Iterable[Builder]) -> Iterator[Table]:
    """Tables that have rows, with methods that see validation data marked."""
    for build in builders:
        table = build(data)
        if table is not None:
            yield named(marked(table, data), data)


def paper_tables(data: StudyData, papers: Sequence[Paper]) -> list[Table]:
    """Claims and tables of papers."""
    filled = [(paper, list(filled_tables(data, paper))) for paper in papers]
    checked = claims_table(data, filled)
    found = [] if checked is None else [checked]
    for paper, tables in filled:
        found += [paper_table(data, paper, table) for table in tables]
    return [named(table, data) for table in found]


def write_tables(study: Path, manifest: Manifest, out: Path) -> list[Path]:
    """Write all tables that have rows, and ``index.json``.

    Returns the paths of the files written, the index last.

    Raises
    ------
    DataError : a file of the study is missing or damaged.
    """
    data = StudyData(study, manifest)
    tables = [*built(data, table_builders()), *paper_tables(data, papers_of(manifest))]
    paths = []
    for table in tables:
        paths += table.write(out)
    return [*paths, write_index(out, [table.entry for table in tables])]
