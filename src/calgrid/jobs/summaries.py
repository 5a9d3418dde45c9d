"""Summaries over seeds of the metrics of a study and of their means over shifts, one slice on disk
at a time.
"""

import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pandas as pd

from calgrid.parallel import Map
from calgrid.specs import Manifest
from calgrid.statistics import mean_over_severities, mean_over_shifts, summarise
from calgrid.storage.schema import CONDITION, NUMBER_KEY, SHIFT_SUMMARY_COLUMNS
from calgrid.storage.slices import Slice, Slices, read_slice
from calgrid.storage.tables import Table, as_table, read_published, table_of_rows, to_table, writing

#: values of ``CONDITION``
Group: TypeAlias = tuple[str, ...]
#: columns that identify a mean over shifts
SHIFTED = ("checkpoint", "method", "calibrator", "fit_on")


def shift_means(metrics: pd.DataFrame) -> pd.DataFrame:
    """Means over the corruptions of each severity, and their means over severities (severity -1)."""
    means = mean_over_shifts(metrics)
    return pd.concat([means, mean_over_severities(means)], ignore_index=True)


def write_summary(manifest: Manifest, slices: Slices, path: Path, in_processes: Map) -> int:
    """Write the summary, and return its number of rows."""
    statistics = manifest["statistics"]
    published = read_published(manifest["published"]) if manifest["published"] else None
    of_slice = functools.partial(
        summarise,
        baseline_method=statistics["baseline"],
        published=published,
        level=statistics["level"],
    )
    with writing(path) as writer:
        return sum(
            writer.add(to_table(rows)) for rows in _summaries(slices, of_slice, in_processes)
        )


def write_shift_summary(manifest: Manifest, slices: Slices, path: Path, in_processes: Map) -> None:
    """Write the summary of the means over shifts."""
    statistics = manifest["statistics"]
    of_slice = functools.partial(
        _with_shifts, baseline=statistics["baseline"], level=statistics["level"]
    )
    with writing(path) as writer:
        writer.add(table_of_rows([], SHIFT_SUMMARY_COLUMNS))
        for rows in _summaries(slices, of_slice, in_processes):
            writer.add(_shift_table(rows))


def _summaries(
    slices: Slices, of_slice: Callable[[pd.DataFrame], pd.DataFrame], in_processes: Map
) -> Iterator[pd.DataFrame]:
    """Summary of each condition; the conditions are sorted, so that only the rows of one are in
    memory.
    """
    for condition, parts in slices.read():
        if found := list(in_processes(functools.partial(_of_part, of_slice, condition), parts)):
            yield pd.concat(found).sort_values(list(NUMBER_KEY), kind="stable")


def _of_part(
    of_slice: Callable[[pd.DataFrame], pd.DataFrame], condition: Group, part: Slice
) -> pd.DataFrame:
    rows = read_slice(part)
    codes = [0] * len(rows)
    common = {
        n: pd.Categorical.from_codes(codes, [v]) for n, v in zip(CONDITION, condition, strict=True)
    }
    return of_slice(rows.assign(**common))


def shift_summary(means: pd.DataFrame, baseline: str, level: float) -> Table:
    """Summary over seeds of the means of :func:`shift_means` of one condition
    (``SHIFT_SUMMARY_COLUMNS``).
    """
    return _shift_table(_with_shifts(means, baseline, level))


def _with_shifts(means: pd.DataFrame, baseline: str, level: float) -> pd.DataFrame:
    """Summary of means over shifts, with their numbers of shifts."""
    counts = means.groupby(list(SHIFTED), observed=True)["n_shifts"].max().reset_index()
    return summarise(means, baseline, level=level).merge(counts, on=list(SHIFTED))


def _shift_table(rows: pd.DataFrame) -> Table:
    most = rows.groupby(list(SHIFTED))["n_shifts"].transform("max")
    return as_table(rows.assign(n_shifts=most), SHIFT_SUMMARY_COLUMNS)
