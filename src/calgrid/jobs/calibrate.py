"""Job ``calibrate``: fit every calibrator on val, score it on test, shifts and
out-of-distribution sets.

With ``fit_on: same_shift`` a calibrator is fitted again for each corruption and severity, on a
random 20 % of the rows, and scored on the other 80 %; with ``redrawn`` on a random 20 % of val and
test together (the protocols of SMART for ImageNet-C and ImageNet).

The work is divided into chunks: the clean splits, and each row group of each shift family. Each
process holds one chunk in memory and runs all calibrators on it, because starting Python takes
longer than most fits. Results that took more than a second are stored in the working folder, and a
killed job continues with identical results. Fits on val are cached in the folder of the run, so
that another study does not repeat them.
"""

import functools
import itertools
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import pandas as pd

from calgrid.calibrators.base import WORSE
from calgrid.jobs.diagnostics import measured
from calgrid.jobs.ood import AVERAGED, group_metrics, mean_draws, of_groups, rows_alike
from calgrid.jobs.scoring import Chunk, ChunkResult, Result, Scorer, ScoringJob, score_chunk
from calgrid.metrics.intervals import tails_of
from calgrid.papers.smart import diagnostics as smart
from calgrid.parallel import processes
from calgrid.progress import Progress, log
from calgrid.storage import provenance
from calgrid.storage.logits import count_groups
from calgrid.storage.publish import Call, make_result
from calgrid.storage.records import (
    CALIBRATE,
    PREDICT,
    TRAIN_SPLIT,
    Facts,
    Record,
    digest_of,
    head_file,
    logits_file,
    logits_files,
)
from calgrid.storage.schema import (
    BINS,
    CLASSES,
    CONFORMAL,
    MEAN_SHIFT,
    METRIC_COLUMNS,
    METRICS,
    PART_EXTRAS,
    RESAMPLES,
    Row,
)
from calgrid.storage.specs import CalibrateSpec
from calgrid.storage.tables import write_frame

OUTPUTS = (METRICS, RESAMPLES)


def run(call: Call) -> bool:
    """Fit and score all calibrators of a run; return False if the result already exists.

    The job reads the record of its logits. The folder receives ``metrics.parquet``,
    ``calibrate.json`` and ``resamples.parquet``: metrics with verdicts on common resamples, for
    calibrators fitted on val; with ``conformal`` also ``conformal.parquet``, metrics of prediction
    sets. The results do not depend on the number of processes, ``call.threads``.
    """
    spec: CalibrateSpec = call.spec
    predicted = call.reads[0].parent
    names = [*_logits_files(spec), *map(head_file, spec["checkpoints"])]
    extras = {**PART_EXTRAS, **smart.FILES}
    columns = {METRICS: METRIC_COLUMNS, **extras}
    logits = Record.read(predicted, PREDICT)
    read = {name: logits.sha256(name) for name in names if name in logits.files}

    def produce(folder: Path) -> Facts:
        begin = time.monotonic()
        job = ScoringJob(call, predicted, folder, digest_of(read))
        chunks = _score_all(job, logits, call.threads)
        results = sorted(itertools.chain(*(chunk.results for chunk in chunks)))
        rows, fits = defaultdict[str, list[Row]](list), []
        for result in results:
            fits += result.fits
            for name, of_file in result.rows.items():
                rows[name] += of_file
        rows[METRICS] = [{"shift": "", "severity": 0, **row} for row in rows[METRICS]]
        rows[RESAMPLES] = _with_means(rows[RESAMPLES], spec["ood_groups"])
        tails = tails_of(spec["statistics"]["level"])
        rows[METRICS] += group_metrics(rows[METRICS], rows[RESAMPLES], spec["ood_groups"], tails)
        metrics = pd.DataFrame(rows[METRICS])
        warnings = _high_nll(metrics)
        for fit in fits:
            about = f"{fit['calibrator']} (seed {fit['fit_seed']}, {fit['checkpoint']} checkpoint)"
            warnings += [f"{about}: {warning}" for warning in fit["warnings"]]
        warnings += _refit_warnings(spec, results)
        for warning in warnings:
            log(f"Warning: {warning}")
        tables = {
            METRICS: metrics,
            RESAMPLES: pd.DataFrame(rows[RESAMPLES]),
            CLASSES: pd.DataFrame(rows[CLASSES]),
            **_diagnostics(job, rows[BINS]),
        }
        if rows[CONFORMAL]:
            tables[CONFORMAL] = pd.DataFrame(rows[CONFORMAL])
        for name, table in tables.items():
            complete = table.reindex(columns=list(columns[name]))
            footer = {"fingerprint": spec["fingerprint"]}
            write_frame(folder / name, complete, footer, columns[name])
        facts = {
            "spec": dict(spec),
            "fits": fits,
            "chunks": [chunk.cost for chunk in chunks],
            "warnings": warnings,
        }
        record = provenance.job_record(facts, begin, "numpy", "scipy", "pandas")
        children = 0 if call.threads == 1 else call.threads
        return {**record, "peak_memory_mb": provenance.peak_memory_mb(children)}

    return make_result(
        call,
        CALIBRATE,
        OUTPUTS,
        produce,
        {predicted: read},
        [name for name in extras if name not in OUTPUTS],
    )


def _logits_files(spec: CalibrateSpec) -> list[str]:
    """Logits of splits and shift families, and of training images if they were exported."""
    trained = [TRAIN_SPLIT] if TRAIN_SPLIT in spec["logits"] else []
    return logits_files(spec["checkpoints"], [*trained, *spec["families"]])


def _score_all(job: ScoringJob, logits: Record, threads: int) -> list[ChunkResult]:
    """Results of all chunks: first of clean splits, then of shift families."""
    spec = job.spec
    for name in _logits_files(spec):
        logits.verified(name, "logits file")
    calibrators = tuple(range(len(spec["calibrators"])))
    clean, shifted = [], []
    for number, checkpoint in enumerate(spec["checkpoints"]):
        if threads > 1:  # the processes divide the calibrators
            clean += [Chunk(number, (calibrator,)) for calibrator in calibrators]
        else:
            clean.append(Chunk(number, calibrators))
        for family, name in enumerate(spec["families"]):
            groups = count_groups(job.predicted / logits_file(checkpoint, name))
            shifted += [Chunk(number, calibrators, family, group) for group in range(groups)]
    scored: list[ChunkResult] = []
    total = len(clean) + len(shifted)
    with (
        Progress("calibrate", total, "chunk") as progress,
        processes(threads) as in_processes,
    ):
        for chunks in (clean, shifted):  # the clean splits first: they cache the fits
            for results in in_processes(functools.partial(score_chunk, job), chunks):
                scored += results
                progress.advance()
    return scored


def _diagnostics(job: ScoringJob, bins: list[Row]) -> dict[str, pd.DataFrame]:
    """Diagnostics for figures, of calibrators fitted on val, with the ``bins`` of calibrators."""
    spec = job.spec
    entries = spec["calibrators"]
    diagnosed = smart.calibrators(entries)
    parts = defaultdict[str, list[pd.DataFrame]](list)
    for number, checkpoint in enumerate(spec["checkpoints"]):
        scorer = Scorer(job, Chunk(number, ()))
        fitted = {}
        for entry in entries:
            if entry["name"] in diagnosed:
                fitted[entry["name"]], _ = scorer.fitted(entry, min(entry["seeds"]))
        n_bins = spec["statistics"]["bins"]
        found = measured(n_bins, scorer.fit, scorer.test, fitted)
        for name, table in found.items():
            parts[name].append(table.assign(checkpoint=checkpoint))
    parts[BINS].append(pd.DataFrame(bins))
    return {name: pd.concat(tables, ignore_index=True) for name, tables in parts.items()}


def _high_nll(metrics: pd.DataFrame) -> list[str]:
    """Warnings of calibrators whose NLL is much higher than without, on the clean test split."""
    on_test = (metrics["split"] == "test") & (metrics["fit_on"] == "val")
    nll = metrics[on_test & (metrics["metric"] == "nll")]
    bare = nll[nll["calibrator"] == "none"].set_index("checkpoint")["value"]
    worse = nll[nll["value"] > WORSE * nll["checkpoint"].map(bare)]
    return [
        f"{row.calibrator} (seed {row.fit_seed}, {row.checkpoint} checkpoint) has an NLL of "
        f"{row.value:.4g}, more than {WORSE:g} times that of the uncalibrated logits, "
        f"{bare[row.checkpoint]:.4g}."
        for row in worse.itertuples()
    ]


def _refit_warnings(spec: CalibrateSpec, results: Iterable[Result]) -> list[str]:
    """Warnings of the fits on drawn rows, one message per calibrator."""
    by_calibrator: dict[tuple[str, str], list[str]] = {}
    for result in results:
        checkpoint = spec["checkpoints"][result.checkpoint]
        calibrator = spec["calibrators"][result.calibrator]["name"]
        by_calibrator.setdefault((checkpoint, calibrator), []).extend(result.warnings)
    return [
        f"{calibrator} (drawn rows, {checkpoint} checkpoint): {len(warnings)} fits warn, first "
        f"that on {warnings[0]}"
        for (checkpoint, calibrator), warnings in by_calibrator.items()
        if warnings
    ]


def _with_means(draws: Sequence[Row], groups: Mapping[str, Sequence[str]]) -> list[Row]:
    """Rows of ``resamples.parquet``; corruptions are averaged, and then their severities, and the
    out-of-distribution sets of each group, which stay.
    """
    kept: list[Row] = []
    corrupted: list[Row] = []
    for row in draws:
        of_corruption = row["split"] == "shift" and row["severity"] > 0
        (corrupted if of_corruption else kept).append(row)
    alike = rows_alike(corrupted, AVERAGED)
    means = [mean_draws(rows, MEAN_SHIFT, rows[0]["severity"]) for rows in alike]
    totals = rows_alike(means, [key for key in AVERAGED if key != "severity"])
    kept += means + [mean_draws(rows, MEAN_SHIFT, -1) for rows in totals]
    return kept + [mean_draws(rows, group, 0) for group, rows in of_groups(kept, groups)]
