"""Job ``aggregate``: collect the results of all runs of a study for tables, figures and report.

``storage.schema`` lists the files and their columns. Rows are written as they are read, and
summarised one setting (protocol, data set, backbone) after the other, so that memory does not
grow with the number of settings. The results do not depend on the number of processes.
"""

import functools
import itertools
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from calgrid.components.options import Options
from calgrid.errors import StateError
from calgrid.jobs.summaries import (
    footer_of,
    setting_of,
    shift_means,
    write_summaries,
)
from calgrid.papers.smart import diagnostics as smart
from calgrid.parallel import Map, processes
from calgrid.progress import Progress
from calgrid.report import changes
from calgrid.storage import provenance, schema
from calgrid.storage.logits import identity_of_rows, read_table
from calgrid.storage.manifest import Manifest, ManifestRun
from calgrid.storage.publish import Call, replace_files
from calgrid.storage.records import (
    CALIBRATE,
    HISTORY,
    MANIFEST,
    MEND,
    PREDICT,
    PREPARE,
    PROBE,
    PROBE_TABLE,
    SPLITS,
    TRAIN,
    Facts,
    Record,
    RunKey,
    listing,
    record_of,
    sharing_rows,
    write_record,
)
from calgrid.storage.schema import COSTS, METRICS, RUN_KEY, SETTING, Row
from calgrid.storage.tables import (
    Table,
    as_table,
    join,
    join_any,
    read_result,
    table_of_rows,
    with_columns,
    with_words,
    writing,
)

#: runs that a process reads in one batch
BATCH_RUNS = 32
#: keys of the training specification in ``runs.json``
FACTS = ("loss", "procedure")
#: keys of the training record in ``runs.json``
RECORDED = ("environment", "interruptions", "weights")
#: key by which fits of calibrators are counted
FIT = (*SETTING, "calibrator")
Fit = tuple[str, ...]
#: yields tables of a run
Reader = Callable[[ManifestRun], Iterable[Table]]


def run(call: Call) -> None:
    """Collect the results of all runs of a study in its folder.

    Raises
    ------
    DataError : results of a run are missing or damaged.
    StateError : they are of another configuration, code version or run.
    """
    manifest: Manifest = call.spec

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        # here, as Snakemake removes the folder of tables before their job
        changes.keep(call.out.parents[1])
        _check_rows(manifest["runs"])
        write_record(folder / MANIFEST, manifest)
        with processes(call.threads) as in_processes:
            n_metrics = _collect_metrics(manifest, folder, in_processes)
            collect_diagnostics(manifest, folder, in_processes)
            n_summary = write_summaries(manifest, folder, in_processes)
            n_costs, warnings = _collect_costs(
                manifest["runs"], folder / COSTS, footer_of(manifest), in_processes
            )
        facts = {
            "fingerprint": manifest["fingerprint"],
            "rows": {"metrics": n_metrics, "summary": n_summary, "costs": n_costs},
            "warnings": warnings,
        }
        return provenance.job_record(facts, begin, "numpy", "scipy", "pandas", "pyarrow")

    read = {}
    for folder in map(Path, manifest["folders"]):
        name = record_of(folder)
        if name == PREPARE:  # of runs alone
            continue
        if digest := listing(folder).get(name):
            read[folder] = {name: digest}
    replace_files(call, (*schema.STUDY_FILES, *smart.FILES), produce, read)


def _record(folder: str, name: str) -> Record:
    """Return a record; memoised until its mtime changes, as several files need it."""
    path = Path(folder, name)
    changed = path.stat().st_mtime_ns if path.is_file() else 0
    return _read(folder, name, changed)


@functools.cache
def _read(folder: str, name: str, changed: int) -> Record:
    return Record.read(Path(folder), name)


def _check_rows(runs: Sequence[ManifestRun]) -> None:
    """Raise StateError if a run has other test rows than compared external logits, or other
    validation rows than those of a bank.
    """
    with_external = {setting_of(run) for run in runs if "bank" in run}
    with_banks = {setting_of(run) for run in runs if run.get("bank", False)}
    known: dict[tuple[object, ...], tuple[RunKey, str]] = {}
    for run in runs:
        if setting_of(run) not in with_external:
            continue
        key, splits = RunKey(**run["key"]), SPLITS if setting_of(run) in with_banks else ["test"]
        for split, rows in _rows_of(run, splits).items():
            first, expected = known.setdefault(sharing_rows(key, split), (key, rows))
            if rows != expected:
                raise StateError(
                    f"{key.path} and {first.path} have other {split} images or labels, so they "
                    "cannot be compared image by image; take external logits of the same split of "
                    f"{key.dataset}, in the same order."
                )


def _rows_of(run: ManifestRun, splits: Iterable[str]) -> dict[str, str]:
    """Identities of the rows of splits of a run."""
    record = _record(run["predict"], PREDICT)
    first = min(name for name in record.files if name.endswith("/test.parquet"))
    identities = {}
    for split in splits:
        path = record.verified(f"{Path(first).parent}/{split}.parquet")
        table = read_table(path, columns=["index", "label"])
        rows = table["index"].to_numpy(), table["label"].to_numpy()
        identities[split] = identity_of_rows(*rows)
    return identities


def _collect_metrics(manifest: Manifest, folder: Path, in_processes: Map) -> int:
    """Write metrics and means over shifts of all runs; return the number of metrics."""
    runs, footer = manifest["runs"], footer_of(manifest)
    rows = 0
    with (
        Progress("aggregate", len(runs), "run") as progress,
        writing(folder / METRICS, footer) as metrics,
        writing(folder / schema.SHIFT_MEANS, footer) as means,
    ):
        batches = list(_batches(runs))
        read = functools.partial(_read_metrics_of, manifest["configuration"]["statistics"])
        for batch, tables in zip(batches, in_processes(read, batches), strict=True):
            rows += metrics.add(tables[0])
            means.add(tables[1])
            for _ in batch:
                progress.advance()
    return rows


def _batches(runs: Sequence[ManifestRun]) -> Iterator[Sequence[ManifestRun]]:
    """Consecutive runs of one setting."""
    for _, alike in itertools.groupby(runs, setting_of):
        while batch := list(itertools.islice(alike, BATCH_RUNS)):
            yield batch


def _read_metrics_of(statistics: Options, runs: Sequence[ManifestRun]) -> tuple[Table, Table]:
    """Metrics of some runs, and their means over shifts in the order of the runs, with intervals if
    the study wants them.
    """
    table = with_columns(join(map(_read_metrics, runs)), {"bins": statistics["bins"]})
    table = table.select(list(schema.STUDY_METRIC_COLUMNS))
    read = functools.partial(_calibrated_file, schema.RESAMPLES, schema.RESAMPLE_COLUMNS)
    drawn = _tables_of(read, runs) if statistics["bootstrap"] else []
    resamples = join_any(drawn).to_pandas() if drawn else None
    means = shift_means(table.to_pandas(), resamples, statistics["level"])
    order = pd.MultiIndex.from_tuples([RunKey(**run["key"]) for run in runs])
    places = order.get_indexer(pd.MultiIndex.from_frame(means[list(RUN_KEY)]))
    return table, as_table(means.iloc[np.argsort(places, kind="stable")], schema.SHIFT_MEAN_COLUMNS)


def _read_metrics(run: ManifestRun) -> Table:
    """Metrics of a run; a file of another run (misplaced) raises StateError."""
    path = _record(run["calibrate"], CALIBRATE).verified(METRICS, "metrics file")
    part = read_result(path, "metrics file", run["fingerprint"], schema.METRIC_COLUMNS)
    for name, value in RunKey(**run["key"])._asdict().items():
        found = part.column(name).unique().to_pylist()
        if found != [value]:
            raise StateError(
                f"The metrics file {path} has the {name} {', '.join(map(str, found))} instead of "
                f"{value}; {MEND}."
            )
    return part


def _collect_costs(
    runs: Sequence[ManifestRun], path: Path, footer: Facts, in_processes: Map
) -> tuple[int, list[Row]]:
    """Write the costs of all runs; return the number of rows and the warnings of fits.

    For each calibrator with warnings in a setting: its number of fits, how many warned, how many
    did not converge, and their warnings (text -> the runs).
    """
    total = 0
    texts = defaultdict[Fit, defaultdict[str, list[str]]](lambda: defaultdict(list))
    counts = defaultdict[Fit, Counter[str]](Counter)
    with writing(path, footer) as writer:
        for costs, fits in in_processes(_costs_of, _batches(runs)):
            total += writer.add(costs)
            for fit, run, said, converged in fits:
                counts[fit].update(fits=1, warned=bool(said), unconverged=not converged)
                for warning in said:
                    texts[fit][warning].append(run)
    warnings = []
    for fit, by_text in sorted(texts.items()):
        place = dict(zip(FIT, fit, strict=True))
        warnings.append({**place, **counts[fit], "texts": by_text})
    return total, warnings


def _costs_of(
    runs: Sequence[ManifestRun],
) -> tuple[Table, list[tuple[Fit, str, list[str], bool]]]:
    """Costs of some runs, and of each fit its run, its warnings, and whether it converged."""
    rows: list[Row] = []
    warnings = []
    for run in runs:
        fits = _record(run["calibrate"], CALIBRATE).content["fits"]
        rows += _costs(run, fits)
        named = f"{run['key']['method']} seed {run['key']['seed']}"
        for fit in fits:
            place = (*setting_of(run), fit["calibrator"])
            said = list(fit.get("warnings", ()))
            warnings.append((place, named, said, fit.get("converged", True)))
    return table_of_rows(rows, schema.COST_COLUMNS), warnings


def _costs(run: ManifestRun, fits: Sequence[Facts]) -> Iterator[Row]:
    """Costs of a run: first stage, training, prediction, further jobs, fits of calibrators."""
    first = run["first_stage"]
    found: list[tuple[str, str, Row]] = []
    if first is not None:
        found.append(("first_stage", first["method"], _job_cost(first["train"], TRAIN)))
    if run["train"] is not None:
        # the seconds of a download are not training
        record = _record(run["train"], TRAIN).content
        stage = "weights" if "weights" in record else "train"
        found.append((stage, "", _job_cost(run["train"], TRAIN)))
        found.append(("predict", "", _job_cost(run["predict"], PREDICT)))
    if "members" in run:
        costs = [_job_cost(folder, TRAIN) for folder in run["members"]]
        total = dict(costs[0])
        for name in ("seconds", "epochs", "parameters"):
            total[name] = sum(cost[name] or 0 for cost in costs)
        total["peak_memory_mb"] = max(cost["peak_memory_mb"] for cost in costs)
        found.append(("train", "", total))
    for folder in run.get("further", ()):
        name = record_of(Path(folder))
        item = Path(folder).name.partition("-")[0].partition("_")[2]  # the name of a probe
        found.append((Path(name).stem, item, _job_cost(folder, name)))
    for fit in fits:
        measured = {name: fit[name] for name in ("fit_seed", "seconds")}
        found.append(("calibrate", fit["calibrator"], {**measured, "device": "cpu"}))
    for stage, item, cost in found:
        yield {**run["key"], "stage": stage, "item": item, **cost}


def _job_cost(folder: str, name: str) -> Row:
    """Cost of a job from its record."""
    record = _record(folder, name).content
    environment = record["environment"]
    return {
        "seconds": record["seconds"],
        "peak_memory_mb": record["peak_memory_mb"],
        **{name: environment[name] for name in ("device", "device_name", "threads")},
        "epochs": record.get("epochs"),
        "parameters": record.get("parameters"),
    }


def collect_diagnostics(manifest: Manifest, folder: Path, in_processes: Map = map) -> None:
    """Write bins, resamples, histories, samples, probes, diagnostics of papers and facts of runs.

    Diagnostics of papers come from one run per setting, the first seed of its reference method.
    """
    runs, footer = manifest["runs"], footer_of(manifest)
    references = _reference_runs(runs, manifest["configuration"]["statistics"]["baseline"])
    collected: list[tuple[Sequence[ManifestRun], str, schema.Columns, Reader]] = [
        (runs, schema.SAMPLES, schema.SAMPLE_COLUMNS, _last_samples)
    ]
    for of_files, files in ((runs, schema.PART_EXTRAS), (references, smart.FILES)):
        for name, columns in files.items():
            reader = functools.partial(_calibrated_file, name, columns)
            collected.append((of_files, name, columns, reader))
    for chosen, name, columns, read in collected:
        of_batch = functools.partial(_rows_with_keys, read, {**schema.KEY_COLUMNS, **columns})
        with writing(folder / name, footer) as writer:
            for table in in_processes(of_batch, _batches(chosen)):
                writer.add(table)
    others: dict[str, Reader] = {
        schema.HISTORIES: functools.partial(_trained_file, HISTORY, "training history"),
        schema.PROBES: _probe_tables,
    }
    for name, read_other in others.items():
        # their columns depend on losses and probes; without rows they need some, too
        tables = in_processes(functools.partial(_tables_of, read_other), _batches(runs))
        empty = table_of_rows([], schema.KEY_COLUMNS)
        with writing(folder / name, footer) as writer:
            writer.add(join_any([empty, *itertools.chain.from_iterable(tables)]))
    write_record(folder / schema.RUNS, {"runs": list(in_processes(_facts, runs))})


def _rows_with_keys(read: Reader, columns: schema.Columns, runs: Sequence[ManifestRun]) -> Table:
    """Rows of some runs with these columns, including the key of the run."""
    found = (table.select(list(columns)) for table in _tables_of(read, runs))
    return join([table_of_rows([], columns), *(with_words(each, encoded=True) for each in found)])


def _tables_of(read: Reader, runs: Sequence[ManifestRun]) -> list[Table]:
    """Tables of some runs, with the key of the run in each row."""
    return [with_columns(table, run["key"]) for run in runs for table in read(run)]


def _reference_runs(runs: Sequence[ManifestRun], baseline: str) -> list[ManifestRun]:
    """The run of each setting with the first seed of the baseline, or of its first method without
    a baseline.
    """
    references = []
    for setting in dict.fromkeys(map(setting_of, runs)):
        alike = [run for run in runs if setting_of(run) == setting]
        methods = [run["key"]["method"] for run in alike]
        method = baseline if baseline in methods else methods[0]
        seeds = [run for run in alike if run["key"]["method"] == method]
        references.append(min(seeds, key=lambda run: run["key"]["seed"]))
    return references


def _calibrated_file(name: str, columns: schema.Columns, run: ManifestRun) -> Iterator[Table]:
    """An optional file of the job ``calibrate``."""
    record = _record(run["calibrate"], CALIBRATE)
    if name in record.files:
        yield read_result(record.verified(name), f"file {name}", run["fingerprint"], columns)


def _trained_file(name: str, what: str, run: ManifestRun) -> Iterator[Table]:
    """An optional file of the job ``train``."""
    if run["train"] is not None:
        record = _record(run["train"], TRAIN)
        if name in record.files:
            yield read_result(record.verified(name, what))


def _last_samples(run: ManifestRun) -> Iterator[Table]:
    """Training samples of the last recorded epoch, sorted by index."""
    for table in _trained_file(schema.SAMPLES, "file of training samples", run):
        samples = table.to_pandas()
        last = samples[samples["epoch"] == samples["epoch"].max()].sort_values("index")
        yield as_table(last, schema.SAMPLE_COLUMNS)


def _probe_tables(run: ManifestRun) -> Iterator[Table]:
    """Tables of the probes of a run, with the name of the probe."""
    for probe in run.get("probes", ()):
        what = f"table of the probe {probe['name']}"
        path = _record(probe["folder"], PROBE).verified(PROBE_TABLE, what)
        yield with_columns(read_result(path, what, probe["fingerprint"]), {"probe": probe["name"]})


def _facts(run: ManifestRun) -> Row:
    """Key, and environments of its jobs; of trained runs options and environment of training, too,
    of a bank's the origin.
    """
    jobs = [(run["predict"], PREDICT), (run["calibrate"], CALIBRATE)]
    jobs += [(folder, record_of(Path(folder))) for folder in run.get("further", ())]
    environments = []
    for folder, name in jobs:
        environment = _record(folder, name).content["environment"]
        environments.append({"stage": Path(name).stem, **environment})
    facts: Row = {**run["key"], "environments": environments}
    if run.get("bank", False):
        facts["origin"] = _record(run["predict"], PREDICT).content["origin"]
    if run["train"] is not None:
        record = _record(run["train"], TRAIN).content
        for content, names in ((record.get("spec", {}), FACTS), (record, RECORDED)):
            facts.update((name, content[name]) for name in names if name in content)
    return facts
