"""Job ``calibrate``: fit every calibrator on val, score it on test, shifts and
out-of-distribution sets.

With ``fit_on: same_shift`` a calibrator is fitted again for each corruption and severity, on a
random 20 % of the rows, and scored on the other 80 % (the protocol of SMART for ImageNet).

The work is divided into parts: the clean splits, and each row group of each shift family. Each
process holds one part in memory and runs all calibrators on it, because starting Python takes
longer than most fits. Results that took more than a second are stored in the working folder, and a
killed job continues with identical results. Fits on val are cached in the folder of the run, so
that another study does not repeat them.
"""

import functools
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

from calgrid.calibrators.base import WORSE
from calgrid.jobs.diagnostics import Diagnostics, shown_calibrators
from calgrid.jobs.scoring import Part, Row, Scorer, Work, score_part
from calgrid.parallel import processes
from calgrid.progress import Progress, log
from calgrid.specs import CalibrateSpec
from calgrid.storage import provenance
from calgrid.storage.layout import head_file, logits_file, logits_files
from calgrid.storage.logits import count_groups
from calgrid.storage.publish import make_result
from calgrid.storage.records import CALIBRATE, PREDICT, Record, digest_of
from calgrid.storage.schema import METRIC_COLUMNS, PART_EXTRAS, RESAMPLE_COLUMNS, RESAMPLES
from calgrid.storage.tables import write_frame

OUTPUTS = ("metrics.parquet",)
#: folder of fitted calibrators, in the folder of the run
FITS = "fits"


def calibrate(spec: CalibrateSpec, predicted: Path, out: Path, threads: int = 1) -> bool:
    """Fit and score all calibrators of a run; return False if the result was there already.

    ``predicted`` is the folder of its logits. ``out`` receives ``metrics.parquet`` and
    ``calibrate.json``; with ``paired_resamples`` also ``resamples.parquet``: each metric on common
    resamples of the clean test split, for each calibrator fitted on val and each of its seeds. The
    results do not depend on the number of processes, ``threads``.
    """
    names = [
        *logits_files(spec["checkpoints"], spec["families"]),
        *map(head_file, spec["checkpoints"]),
    ]
    logits = Record.read(predicted, PREDICT)
    inputs = {name: logits.sha256(name) for name in names if name in logits.files}

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        work = Work(spec, predicted, out.parent / FITS, folder, digest_of(inputs))
        parts = _score_all(work, logits, threads)
        scored = sorted(
            (result for part in parts for result in part.pop("results")),
            key=lambda each: each["place"],
        )
        metrics = _tidy([row for each in scored for row in each["rows"]])
        fits = [fit for each in scored for fit in each["fits"]]
        draws = [draw for each in scored for draw in each["draws"]]
        warnings = _warnings(metrics)
        for fit in fits:
            about = f"{fit['calibrator']} (seed {fit['fit_seed']}, {fit['checkpoint']} checkpoint)"
            warnings += [f"{about}: {warning}" for warning in fit["warnings"]]
        warnings += _refit_warnings(spec, scored)
        for warning in warnings:
            log(f"Warning: {warning}")
        write_frame(folder / "metrics.parquet", metrics, {"fingerprint": spec["fingerprint"]})
        _write_diagnostics(work)
        if draws:
            frame = pd.DataFrame(draws, columns=list(RESAMPLE_COLUMNS))
            write_frame(folder / RESAMPLES, frame, {"fingerprint": spec["fingerprint"]})
        facts = {
            "spec": dict(spec),
            "fingerprint": spec["fingerprint"],
            "fits": fits,
            "parts": parts,
        }
        record = provenance.stage_record(
            {**facts, "warnings": warnings}, begin, "numpy", "scipy", "pandas"
        )
        return {
            **record,
            "peak_memory_mb": provenance.peak_memory_mb(0 if threads == 1 else threads),
        }

    return make_result(
        out,
        CALIBRATE,
        spec["fingerprint"],
        OUTPUTS,
        produce,
        inputs=inputs,
        optional=[*PART_EXTRAS],
    )


def _score_all(work: Work, logits: Record, threads: int) -> list[Row]:
    """Results of :func:`score_part` for all parts."""
    spec = work.spec
    for name in logits_files(spec["checkpoints"], spec["families"]):
        logits.verified(name, "logits file")
    everyone = tuple(range(len(spec["calibrators"])))
    # the clean splits are one part: several processes divide the calibrators
    alike = [(number,) for number in everyone] if threads > 1 else [everyone]
    clean = [
        Part(checkpoint, some) for checkpoint in range(len(spec["checkpoints"])) for some in alike
    ]
    shifted = [
        Part(checkpoint, everyone, family, group)
        for checkpoint, name in enumerate(spec["checkpoints"])
        for family, of in enumerate(spec["families"])
        for group in range(count_groups(work.predicted / logits_file(name, of)))
    ]
    found: list[Row] = []
    with (
        Progress("calibrate", len(clean) + len(shifted), "part") as progress,
        processes(threads) as in_processes,
    ):
        for parts in (clean, shifted):  # the clean splits first: they cache the fits
            for scored in in_processes(functools.partial(score_part, work), parts):
                found += scored
                progress.advance()
    return found


def _write_diagnostics(work: Work) -> None:
    """Write the diagnostics for figures, of calibrators fitted on val."""
    spec, shown = work.spec, shown_calibrators(work.spec["calibrators"])
    diagnostics = Diagnostics(spec["statistics"]["bins"])
    for number, checkpoint in enumerate(spec["checkpoints"]):
        scorer = Scorer(work, Part(number, ()))
        calibrators = {
            entry["name"]: scorer.fitted(entry, min(entry["seeds"])).calibrator
            for entry in spec["calibrators"]
            if entry["name"] in shown
        }
        diagnostics.add(checkpoint, scorer.fit, scorer.test, calibrators)
    diagnostics.write(work.folder, spec["fingerprint"])


def _warnings(metrics: pd.DataFrame) -> list[str]:
    """Messages about calibrators with a much higher NLL than no calibration on the clean test
    split.
    """
    nll = metrics[(metrics["metric"] == "nll") & (metrics["split"] == "test")]
    bare = nll[nll["calibrator"] == "none"].set_index("checkpoint")["value"]
    worse = nll[nll["value"] > WORSE * nll["checkpoint"].map(bare)]
    return [
        f"{row.calibrator} (seed {row.fit_seed}, {row.checkpoint} checkpoint) has an NLL of "
        f"{row.value:.4g}, more than "
        f"{WORSE:g} times that of the uncalibrated logits, {bare[row.checkpoint]:.4g}."
        for row in worse.itertuples()
    ]


def _refit_warnings(spec: CalibrateSpec, scored: Iterable[Row]) -> list[str]:
    """Warnings of the fits under ``same_shift``, one message per calibrator."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in scored:
        checkpoint, calibrator = each["place"][:2]
        names = spec["checkpoints"][checkpoint], spec["calibrators"][calibrator]["name"]
        found.setdefault(names, []).extend(each["warnings"])
    return [
        f"{name} (same shift, {checkpoint} checkpoint): {len(warnings)} fits warn, first that on "
        f"{warnings[0]}"
        for (checkpoint, name), warnings in found.items()
        if warnings
    ]


def _tidy(rows: list[Row]) -> pd.DataFrame:
    """Rows as a data frame with the columns and types of ``metrics.parquet``."""
    filled = [{"shift": "", "severity": 0, **row} for row in rows]
    return pd.DataFrame(filled, columns=list(METRIC_COLUMNS)).astype(dict(METRIC_COLUMNS))
