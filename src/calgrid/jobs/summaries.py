"""Summaries over seeds of the metrics of a study and of their means over shifts.

Each summary is made of one setting (protocol, data set, backbone) after the other, and of some
test sets of a large setting after the others: rows are ranked and tested within a test set only.
"""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from calgrid import __version__
from calgrid.components.metrics import find_metric
from calgrid.metrics import METRICS as ALL_METRICS
from calgrid.parallel import Map
from calgrid.statistics import mean_over_severities, mean_over_shifts
from calgrid.statistics.shifts import mean_intervals
from calgrid.statistics.summary import Asked, summarise_study
from calgrid.storage.manifest import Manifest, ManifestRun
from calgrid.storage.records import Facts
from calgrid.storage.schema import (
    MEAN_SHIFT,
    METRICS,
    NUMBER_KEY,
    RESAMPLES,
    SETTING,
    SHIFT_MEANS,
    SHIFT_SUMMARY,
    SHIFT_SUMMARY_COLUMNS,
    SUMMARY,
    TEST_COLUMNS,
    TESTS,
)
from calgrid.storage.tables import (
    Table,
    as_table,
    read_published,
    table_of_rows,
    to_table,
    writing,
)

#: values of ``SETTING``
Setting: TypeAlias = tuple[str, ...]
#: columns that identify a test set of a setting
TEST_SET = ("checkpoint", "split", "shift", "severity")
#: metrics summarised at once, about 0.4 kB each
SUMMARISED_ROWS = 2**19
#: columns that identify a mean over shifts
SHIFTED = ("checkpoint", "method", "calibrator", "fit_on")


def shift_means(
    metrics: pd.DataFrame, resamples: pd.DataFrame | None = None, level: float = 0.95
) -> pd.DataFrame:
    """Means over the corruptions of each severity, and over severities (-1), with intervals of the
    metrics in ``resamples``.
    """
    means = mean_over_shifts(metrics)
    means = pd.concat([means, mean_over_severities(means)], ignore_index=True)
    return means if resamples is None else mean_intervals(means, resamples, level)


def setting_of(run: ManifestRun) -> Setting:
    """Setting of a run."""
    key = run["key"]
    return key["protocol"], key["dataset"], key["backbone"]


def footer_of(manifest: Manifest) -> Facts:
    """Facts in the footers of the files of a study: its name, the version of calgrid, the number of
    bins, and of each metric its unit and whether lower values are better (null: neither).
    """
    statistics = manifest["configuration"]["statistics"]
    own = map(find_metric, statistics.get("metrics", ()))
    metrics = {metric.id: metric for metric in (*ALL_METRICS.values(), *own)}
    units = {name: metric.unit for name, metric in metrics.items()}
    return {
        "study": manifest["configuration"]["study"],
        "fingerprint": manifest["fingerprint"],
        "calgrid": __version__,
        "bins": statistics["bins"],
        "units": {**units, "seconds": "s", "peak_memory_mb": "MB"},
        "lower_is_better": {name: metric.lower_is_better for name, metric in metrics.items()},
    }


def write_summaries(manifest: Manifest, folder: Path, in_processes: Map) -> int:
    """Write the summaries of the metrics and of the means over shifts in ``folder``, and the tests
    of both; return the number of rows of the first.
    """
    asked = Asked.of(manifest["configuration"]["statistics"])
    published = read_published(manifest["published"]) if manifest["published"] else None
    of_setting = functools.partial(_summary, folder, asked, published)
    of_shifts = functools.partial(_shift_summary, folder, asked)
    settings, footer, rows = sorted(set(map(setting_of, manifest["runs"]))), footer_of(manifest), 0
    with (
        writing(folder / SUMMARY, footer) as summary,
        writing(folder / SHIFT_SUMMARY, footer) as shifted,
        writing(folder / TESTS, footer) as tests,
    ):
        shifted.add(table_of_rows([], SHIFT_SUMMARY_COLUMNS))
        for found, judged in in_processes(of_setting, settings):
            rows += summary.add(found)
            tests.add(judged)
        for found, judged in in_processes(of_shifts, settings):
            shifted.add(found)
            tests.add(judged)
    return rows


def _summary(
    folder: Path, asked: Asked, published: pd.DataFrame | None, setting: Setting
) -> tuple[Table, Table]:
    """Summary over seeds of the metrics of one setting, and its tests."""
    of_sets = ("shift", "!=", MEAN_SHIFT)
    resamples = _rows_of(folder / RESAMPLES, setting, of_sets).to_pandas()
    parts = [
        summarise_study(piece.to_pandas(), asked, published, resamples)
        for piece in _pieces(_rows_of(folder / METRICS, setting))
    ]
    summaries, tests = zip(*parts, strict=True)
    summary = pd.concat(summaries, ignore_index=True)
    summary = summary.sort_values(list(NUMBER_KEY), kind="stable")
    return to_table(summary), as_table(pd.concat(tests, ignore_index=True), TEST_COLUMNS)


def _pieces(table: Table) -> Iterator[Table]:
    """Rows of whole test sets, about ``SUMMARISED_ROWS`` at a time, at least one set."""
    if len(table) == 0:  # refused where it is summarised
        yield table
        return
    places = table.select(TEST_SET).to_pandas()
    number = places.groupby(list(TEST_SET), observed=True).ngroup().to_numpy()
    counts = np.bincount(number)
    piece = ((np.cumsum(counts) - counts) // SUMMARISED_ROWS)[number]
    for which in np.unique(piece):
        yield table.filter(piece == which)


def _shift_summary(folder: Path, asked: Asked, setting: Setting) -> tuple[Table, Table]:
    """Summary over seeds of the means of :func:`shift_means` of one setting, with their numbers of
    shifts, and its tests.
    """
    table = _rows_of(folder / SHIFT_MEANS, setting)
    if len(table) == 0:
        return table_of_rows([], SHIFT_SUMMARY_COLUMNS), table_of_rows([], TEST_COLUMNS)
    of_means = ("shift", "=", MEAN_SHIFT)
    resamples = _rows_of(folder / RESAMPLES, setting, of_means).to_pandas()
    means = table.to_pandas()
    counts = means.groupby(list(SHIFTED), observed=True)["n_shifts"].max().reset_index()
    rows, tests = summarise_study(means, asked, resamples=resamples)
    rows = rows.merge(counts, on=list(SHIFTED)).sort_values(list(NUMBER_KEY), kind="stable")
    return as_table(rows, SHIFT_SUMMARY_COLUMNS), as_table(tests, TEST_COLUMNS)


def _rows_of(path: Path, setting: Setting, *further: tuple[str, str, str]) -> Table:
    """Rows of a setting in the order of the file, with ``further`` filters of Arrow.

    Row groups are read one after the other, because those of resamples are large.
    """
    wanted = [(name, "=", value) for name, value in zip(SETTING, setting, strict=True)]
    of_setting = pq.filters_to_expression(wanted)
    chosen = pq.filters_to_expression([*wanted, *further])
    tables = []
    with pq.ParquetFile(path) as file:
        columns = [name for name in file.schema_arrow.names if name != "fingerprint"]
        for group in range(file.num_row_groups):
            if len(file.read_row_group(group, SETTING).filter(of_setting)):
                table = file.read_row_group(group, columns, use_threads=False)
                tables.append(table.filter(chosen))
        return pa.concat_tables(tables) if tables else file.schema_arrow.empty_table()
