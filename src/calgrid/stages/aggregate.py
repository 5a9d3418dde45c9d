"""Stage ``aggregate``: all runs of a study in ``metrics.parquet``, ``summary.parquet`` and ``costs.parquet``.

Rows pass through in pieces, so that memory does not grow with the number of runs: metrics are written as they are read,
and dealt into slices on disk by what is ranked and tested together, which are summarised one by one. Several processes
may read and summarise; the bytes do not depend on how many.
"""

import functools
import itertools
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from calgrid.errors import StateError
from calgrid.parallel import Map, processes
from calgrid.progress import Progress
from calgrid.stages.calibrate import COLUMNS
from calgrid.statistics import summarise
from calgrid.statistics._frames import KEYS
from calgrid.storage import provenance
from calgrid.storage.records import AGGREGATE, CALIBRATE, TRAIN, Record, read_record
from calgrid.storage.slices import Slice, Slices
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import Table, join, read_published, read_result, table_of_rows, to_table, writing

OUTPUTS = ("metrics.parquet", "summary.parquet", "costs.parquet")
KEY = ["protocol", "dataset", "backbone", "method", "seed"]
#: leading columns by which a summary is sorted: what differs in them is never compared
CONDITION = ("protocol", "dataset", "backbone")
#: with ``CONDITION``: what rows of one column of a table, which are ranked and tested together, have in common
COLUMN = ("checkpoint", "split", "shift", "severity", "metric")
NOT_SUMMARISED = ("n_samples", "fingerprint")
#: columns of ``costs.parquet`` beside the key; ``fit_seed`` is that of a calibrator
COSTS = {
    **dict.fromkeys(("stage", "item"), "str"),
    **dict.fromkeys(("fit_seed", "seconds", "peak_memory_mb"), "float64"),
    **dict.fromkeys(("device", "device_name"), "str"),
    **dict.fromkeys(("threads", "epochs", "parameters"), "float64"),
}
#: rows that are summarised at once, about; which takes some 150 MB
SLICE_ROWS = 2**18
#: runs that a process reads at once
BATCH_RUNS = 32
Run = Mapping[str, Any]
#: what fits of a calibrator are counted by: names and values
FIT = (*CONDITION, "calibrator")
Fit = tuple[str, ...]


def aggregate(manifest: Mapping[str, Any], out: Path, threads: int = 1) -> bool:
    """Collect the parts that the manifest lists, each checked against its expected fingerprint.

    Parameters
    ----------
    manifest : ``manifest.json`` of a study. out : folder of the study.
    threads : processes that read and summarise, beside this one if there are several.

    Raises
    ------
    StateError : a part was made with another configuration or code version, or for another run.
    DataError : a part is missing or damaged.
    """

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        runs = manifest["runs"]
        with processes(threads) as in_processes:
            with Slices(folder / "slices", COLUMN, SLICE_ROWS) as slices:
                n_metrics = _collect_metrics(runs, folder / "metrics.parquet", slices, in_processes)
                n_summary = _summarise(manifest, slices, folder / "summary.parquet", in_processes)
            n_costs, warnings = _collect_costs(runs, folder / "costs.parquet", in_processes)
        facts = {
            "spec": {**manifest, "runs": len(runs)},
            "fingerprint": manifest["fingerprint"],
            "rows": {"metrics": n_metrics, "summary": n_summary, "costs": n_costs},
            "warnings": warnings,
        }
        return provenance.stage_record(facts, begin, "numpy", "pandas", "pyarrow")

    return run_stage(out, "aggregate", manifest["fingerprint"], OUTPUTS, produce, record=AGGREGATE)


def _collect_metrics(runs: Sequence[Run], path: Path, slices: Slices, in_processes: Map) -> int:
    """Write the metrics of all runs in their order, and deal them into slices; return how many rows there are."""
    members = Counter(map(_condition, runs))
    expected: set[tuple[str, ...]] = set()
    rows = 0
    with Progress("aggregate", len(runs), "run") as progress, writing(path) as writer:
        for table, conditions in in_processes(_read_parts, _batches(runs)):
            writer.add(table)
            numbers, start = table.drop_columns([*CONDITION, *NOT_SUMMARISED]), 0
            for condition, lengths in itertools.groupby(conditions, key=lambda pair: pair[0]):
                counts = [length for _, length in lengths]
                if condition not in expected:
                    expected.add(condition)
                    slices.expect(condition, counts[0] * members[condition])
                slices.add(condition, numbers.slice(start, sum(counts)))
                start += sum(counts)
            rows += len(table)
            for _ in conditions:
                progress.advance()
    return rows


def _batches(runs: Sequence[Run]) -> Iterator[Sequence[Run]]:
    return (runs[start : start + BATCH_RUNS] for start in range(0, len(runs), BATCH_RUNS))


def _read_parts(runs: Sequence[Run]) -> tuple[Table, list[tuple[tuple[str, ...], int]]]:
    """Metrics of some runs, and the condition and the number of rows of each."""
    parts = [_read_part(run) for run in runs]
    return join(parts), [(_condition(run), len(part)) for run, part in zip(runs, parts, strict=True)]


def _condition(run: Run) -> tuple[str, ...]:
    return tuple(run["key"][name] for name in CONDITION)


def _read_part(run: Run) -> Table:
    """Metrics of a run, which must be its own: a file in the wrong place would count its rows twice."""
    path = Record.read(Path(run["part"]), CALIBRATE).verified("metrics.parquet", "metrics file")
    part = read_result(path, "metrics file", run["fingerprint"], COLUMNS)
    for name in KEY:
        found = part.column(name).unique().to_pylist()
        if found != [run["key"][name]]:
            raise StateError(
                f"The metrics file {path} has the {name} {', '.join(map(str, found))} where its place says "
                f"{run['key'][name]}: delete it and run again."
            )
    return part


def _summarise(manifest: Mapping[str, Any], slices: Slices, path: Path, in_processes: Map) -> int:
    """Write the summary of one condition after the other; return how many rows there are.

    Conditions come sorted, and a summary is sorted by them first, so that only the rows of one condition are in memory.
    """
    statistics = manifest["statistics"]
    published = read_published(manifest["published"]) if manifest["published"] else None
    options = {"baseline_method": statistics["baseline"], "published": published, "level": statistics["level"]}
    rows = 0
    with writing(path) as writer:
        for condition, parts in slices.read():
            found = list(in_processes(functools.partial(_summary_of, condition, options), parts))
            summary = found[0] if len(found) == 1 else pd.concat(found).sort_values(list(KEYS), kind="stable")
            writer.add(to_table(summary))
            rows += len(summary)
    return rows


def _summary_of(condition: tuple[str, ...], options: Mapping[str, Any], part: Slice) -> pd.DataFrame:
    return summarise(_placed(part.read(), condition), **options)


def _placed(part: pd.DataFrame, condition: tuple[str, ...]) -> pd.DataFrame:
    """Rows of a slice with the columns that are the same in all of them."""
    codes = [0] * len(part)
    return part.assign(**{n: pd.Categorical.from_codes(codes, [v]) for n, v in zip(CONDITION, condition, strict=True)})


def _collect_costs(runs: Sequence[Run], path: Path, in_processes: Map) -> tuple[int, list[dict[str, Any]]]:
    """Write what all runs cost; return how many rows there are, and what the fits of calibrators warned of.

    There is an entry for each calibrator of a group of runs with warnings: how many fits it has, how many of them
    warned, and the first warning.
    """
    total, fits, warned, first = 0, Counter[Fit](), Counter[Fit](), dict[Fit, str]()
    with writing(path) as writer:
        for costs, found in in_processes(_costs_of, _batches(runs)):
            writer.add(costs)
            total += len(costs)
            for fit, warnings in found:
                fits[fit] += 1
                if warnings:
                    warned[fit] += 1
                    first.setdefault(fit, warnings[0])
    return total, [
        {**dict(zip(FIT, fit, strict=True)), "fits": fits[fit], "warned": count, "first": first[fit]}
        for fit, count in sorted(warned.items())
    ]


def _costs_of(runs: Sequence[Run]) -> tuple[Table, list[tuple[Fit, list[str]]]]:
    """Costs of some runs, and the warnings of each fit of a calibrator."""
    rows, warnings = [], []
    for run in runs:
        calibration = read_record(Path(run["part"], CALIBRATE), "calibrate record")
        rows += _costs(run, calibration["fits"])
        for fit in calibration["fits"]:
            warnings.append(((*_condition(run), fit["calibrator"]), fit.get("warnings", [])))
    return table_of_rows(rows, {**{name: COLUMNS[name] for name in KEY}, **COSTS}), warnings


def _costs(run: Run, fits: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of what a run cost: its first stage, training, prediction, each probe, and each fit of a calibrator."""
    key, first = run["key"], run["first_stage"]
    if first is not None:
        yield {**key, "stage": "first_stage", "item": first["method"], **_stage_cost(first["run"], "train")}
    if not run["external"]:
        yield {**key, "stage": _stage_of_training(run["run"]), "item": "", **_stage_cost(run["run"], "train")}
        yield {**key, "stage": "predict", "item": "", **_stage_cost(run["run"], "predict")}
    for probe in run.get("probes", ()):
        yield {**key, "stage": "probe", "item": probe["name"], **_stage_cost(run["run"], f"probes/{probe['name']}")}
    for fit in fits:
        measured = {name: fit[name] for name in ("fit_seed", "seconds")}
        yield {**key, "stage": "calibrate", "item": fit["calibrator"], **measured, "device": "cpu"}


def _stage_of_training(run: str) -> str:
    """Return ``train``, or ``weights`` where they were taken as they are, which says nothing of what training costs."""
    return "weights" if "weights" in read_record(Path(run, TRAIN), "train record") else "train"


def _stage_cost(run: str, stage: str) -> dict[str, Any]:
    record = read_record(Path(run, f"{stage}.json"), f"{stage} record")
    environment = record["environment"]
    return {
        "seconds": record["seconds"],
        "peak_memory_mb": record["peak_memory_mb"],
        **{name: environment[name] for name in ("device", "device_name", "threads")},
        "epochs": record.get("epochs"),
        "parameters": record.get("parameters"),
    }
