"""Summaries over seeds of the metrics of a study and of their means over shifts, one slice on disk at a time."""

import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pandas as pd

from calgrid.parallel import Map
from calgrid.specs import Manifest
from calgrid.statistics import mean_over_severities, mean_over_shifts, summarise
from calgrid.storage.schema import CONDITION, NUMBER_KEY, SHIFT_SUMMARY_COLUMNS
from calgrid.storage.slices import Slice, Slices
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
    """Write the summary, one condition at a time, and return its number of rows.

    The conditions are sorted, and so is the summary, so that only the rows of one condition are in memory.
    """
    statistics = manifest["statistics"]
    published = read_published(manifest["published"]) if manifest["published"] else None
    options = {"baseline_method": statistics["baseline"], "published": published, "level": statistics["level"]}
    rows = 0
    with writing(path) as writer:
        for condition, parts in slices.read():
            found = list(in_processes(functools.partial(_summary_of, condition, options), parts))
            summary = found[0] if len(found) == 1 else pd.concat(found).sort_values(list(NUMBER_KEY), kind="stable")
            writer.add(to_table(summary))
            rows += len(summary)
    return rows


def _summary_of(condition: Group, options: Mapping[str, Any], part: Slice) -> pd.DataFrame:
    return summarise(_with_condition(part.read(), condition), **options)


def write_shift_summary(manifest: Manifest, slices: Slices, path: Path, in_processes: Map) -> None:
    """Write the summary of the means over shifts, one condition at a time."""
    statistics = manifest["statistics"]
    with writing(path) as writer:
        writer.add(table_of_rows([], SHIFT_SUMMARY_COLUMNS))
        for condition, parts in slices.read():
            of_part = functools.partial(_shift_part, condition, statistics["baseline"], statistics["level"])
            if found := list(in_processes(of_part, parts)):
                writer.add(_shift_table(found))


def shift_summary(means: pd.DataFrame, baseline: str, level: float) -> Table:
    """Summary over seeds of the means of :func:`shift_means` of one condition (``SHIFT_SUMMARY_COLUMNS``)."""
    return _shift_table([_with_shifts(means, baseline, level)])


def _shift_part(condition: Group, baseline: str, level: float, part: Slice) -> pd.DataFrame:
    return _with_shifts(_with_condition(part.read(), condition), baseline, level)


def _with_shifts(means: pd.DataFrame, baseline: str, level: float) -> pd.DataFrame:
    """Summary of means over shifts, with their numbers of shifts."""
    counts = means.groupby(list(SHIFTED), observed=True)["n_shifts"].max().reset_index()
    return summarise(means, baseline, level=level).merge(counts, on=list(SHIFTED))


def _shift_table(found: Sequence[pd.DataFrame]) -> Table:
    rows = pd.concat(found).sort_values(list(NUMBER_KEY), kind="stable")
    rows["n_shifts"] = rows.groupby(list(SHIFTED))["n_shifts"].transform("max")
    return as_table(rows, SHIFT_SUMMARY_COLUMNS)


def _with_condition(part: pd.DataFrame, condition: Group) -> pd.DataFrame:
    """Rows of a slice with the columns of their common condition."""
    codes = [0] * len(part)
    return part.assign(**{n: pd.Categorical.from_codes(codes, [v]) for n, v in zip(CONDITION, condition, strict=True)})
