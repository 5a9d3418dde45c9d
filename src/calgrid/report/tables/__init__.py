"""Tables of a study: unrounded CSV files, formatted Markdown and LaTeX files, and an index for the
report.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from calgrid.report.index import write_index
from calgrid.report.study import StudyData
from calgrid.report.table import Table, marked, named
from calgrid.report.tables import (
    classes,
    comparison,
    conformal,
    costs,
    indicator,
    methods,
    ranks,
    shift,
    tuned,
)

__all__ = ["TABLES", "built", "write_tables"]

#: builds a table; None is a table without rows, which is not written
Builder = Callable[[StudyData], Table | None]
#: tables of every study
TABLES: tuple[Builder, ...] = (
    methods.overview,
    comparison.comparisons,
    tuned.tuned,
    methods.methods,
    ranks.method_ranks,
    comparison.tests,
    comparison.each_two,
    methods.calibrators,
    ranks.calibrator_ranks,
    methods.parts,
    methods.soft_labels,
    classes.class_groups,
    classes.classes,
    shift.shift,
    shift.ood,
    shift.ood_scores,
    conformal.conformal,
    costs.costs,
    costs.training_time,
    comparison.published,
    indicator.indicator,
)


def built(data: StudyData, builders: Iterable[Builder]) -> Iterator[Table]:
    """Tables with rows; methods that see validation data are marked."""
    for build in builders:
        table = build(data)
        if table is not None:
            yield named(marked(table, data), data)


def write_tables(data: StudyData, out: Path, further: Iterable[Table] = ()) -> list[Path]:
    """Write all tables with rows, then ``further`` ones, and ``index.json``.

    Returns the paths of the files written, the index last.

    Raises
    ------
    DataError : a file of the study is missing or damaged.
    """
    tables = [*built(data, TABLES), *further]
    paths = []
    for table in tables:
        paths += table.write(out)
    return [*paths, write_index(out, [asdict(table.shown) for table in tables])]
