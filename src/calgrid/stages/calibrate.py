"""Stage ``calibrate``: fit every calibrator on val, score it on test, shifts and out-of-distribution sets.

Under ``fit_on: same_shift`` a calibrator is fitted again for each corruption and severity, on a random 20 % of its
rows, and scored on the other 80 % (the protocol of SMART for the ImageNet family).

All calibrators of a run are handled in one process: starting Python costs more than most fits. A fitted calibrator is
kept beside the run under a fingerprint of its code, options, seed and data, so that one calibrator more, or another
study, fits nothing again.
"""

import hashlib
import time
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calgrid import fingerprint
from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.conventions import OOD_PREFIX, SAME_SHIFT, SAME_SHIFT_SHARE, WORSE
from calgrid.errors import CalgridError, StateError
from calgrid.metrics import (
    bootstrap,
    bootstrap_ood,
    bootstrap_soft,
    evaluate,
    evaluate_ood,
    evaluate_soft,
    resampled_metrics,
)
from calgrid.progress import Progress, log
from calgrid.specs import CalibrateSpec, FittedCalibrator
from calgrid.stages.diagnostics import Diagnostics, shown_calibrators
from calgrid.stages.label_counts import label_distribution
from calgrid.storage import provenance
from calgrid.storage.head import Head, read_head
from calgrid.storage.layout import head_file, logits_file, logits_files
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.records import CALIBRATE, PREDICT, Record, read_record, write_record
from calgrid.storage.schema import METRIC_COLUMNS, PART_EXTRAS, RESAMPLES
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import write_frame
from calgrid.val_rows import CHOICE, FIT, rows_by_purpose

OUTPUTS = ("metrics.parquet",)
#: key of the record of a fitted calibrator with the course of its fit
COURSE = "course"
Row = dict[str, Any]
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))


def calibrate(spec: CalibrateSpec, run: Path, out: Path) -> bool:
    """Fit and score all calibrators of a run; publish ``metrics.parquet`` and ``calibrate.json`` in ``out``.

    With ``paired_resamples`` also ``resamples.parquet``: the values of each metric on the same resamples of the clean
    test split for each calibrator that was fitted on val and each of its seeds.

    Parameters
    ----------
    spec : what to fit and score (:class:`calgrid.specs.CalibrateSpec`).
    run : folder of the run, which holds ``logits/``.

    Returns
    -------
    False if another process had already written the same files, else True.
    """
    names = [*logits_files(spec["checkpoints"], spec["families"]), *map(head_file, spec["checkpoints"])]
    predicted = Record.read(run, PREDICT)

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        diagnostics = Diagnostics(spec["statistics"]["bins"])
        rows, fits, draws, refits = _score_all(spec, run, predicted, diagnostics)
        metrics = _tidy(rows)
        warnings = [*_warnings(metrics), *_fit_warnings(fits), *refits]
        for warning in warnings:
            log(f"Warning: {warning}")
        write_frame(folder / "metrics.parquet", metrics, {"fingerprint": spec["fingerprint"]})
        diagnostics.write(folder, spec["fingerprint"])
        if draws:
            write_frame(folder / RESAMPLES, pd.DataFrame(draws), {"fingerprint": spec["fingerprint"]})
        return {
            "spec": dict(spec),
            "fingerprint": spec["fingerprint"],
            "environment": provenance.describe("numpy", "scipy", "pandas"),
            "fits": fits,
            "warnings": warnings,
            "seconds": time.monotonic() - begin,
            "peak_memory_mb": provenance.peak_memory_mb(),
        }

    return run_stage(
        out,
        "calibrate",
        spec["fingerprint"],
        OUTPUTS,
        produce,
        record=CALIBRATE,
        inputs={name: predicted.sha256(name) for name in names if name in predicted.files},
        optional=PART_EXTRAS,
    )


def _score_all(
    spec: CalibrateSpec, run: Path, predicted: Record, diagnostics: Diagnostics
) -> tuple[list[Row], list[Row], list[Row], list[str]]:
    """Metrics, costs of the fits, resampled metrics, and warnings of fits under ``same_shift``; adds diagnostics."""
    shown = shown_calibrators(spec["calibrators"])
    rows: list[Row] = []
    fits: list[Row] = []
    draws: list[Row] = []
    refits: list[str] = []
    total = len(spec["checkpoints"]) * sum(len(entry["seeds"]) for entry in spec["calibrators"])
    with Progress("calibrate", total, "calibrator") as progress:
        for checkpoint in spec["checkpoints"]:
            data = _read_all(spec, predicted, checkpoint)
            head = read_head(run / head_file(checkpoint), spec["logits_fingerprint"])
            scorer = _Scorer(spec, checkpoint, data)
            content = _digest(scorer.fit, head)
            calibrators: dict[str, Calibrator] = {}
            for entry in spec["calibrators"]:
                for seed in entry["seeds"]:
                    is_shown = entry["name"] in shown and seed == min(entry["seeds"])
                    trace = is_shown and "trace" in entry["options"]
                    fitted = _fit(entry, seed, scorer.fit, head, content, run / "calibrators" / checkpoint, trace)
                    if is_shown:
                        calibrators[entry["name"]] = fitted.calibrator
                    about = {"checkpoint": checkpoint, "calibrator": entry["name"], **fitted.cost}
                    fits.append({**about, "warnings": fitted.calibrator.fit_history["warnings"]})
                    rows.extend(scorer.score(entry, seed, fitted.calibrator))
                    progress.advance()
                if SAME_SHIFT in spec["fit_on"]:
                    for draw in spec["draws"]:
                        rows.extend(scorer.score_same_shift(entry, draw, head))
            diagnostics.add(checkpoint, scorer.fit, data["test"], calibrators)
            draws.extend(scorer.resampled)
            refits += [
                f"{name} (same shift, {checkpoint} checkpoint): {len(found)} fits warn, first that on {found[0]}"
                for name, found in scorer.refit_warnings.items()
            ]
    return rows, fits, draws, refits


def _read_all(spec: CalibrateSpec, predicted: Record, checkpoint: str) -> dict[str, Logits]:
    data = {}
    for name in ("val", "test", *spec["families"]):
        path = predicted.verified(logits_file(checkpoint, name), "logits file")
        data[name] = read_logits(path)
        found = data[name].metadata.get("fingerprint")
        if found != spec["logits_fingerprint"]:
            raise StateError(
                f"The logits file {path} belongs to another configuration or code version (fingerprint {found}, "
                f"expected {spec['logits_fingerprint']}): delete it and run again."
            )
    if spec["label_counts"]:
        data["test"].distribution = label_distribution(spec["label_counts"], data["test"])
    return data


@dataclass
class _Fitted:
    calibrator: Calibrator
    cost: Row


def _digest(val: Logits, head: Head | None) -> str:
    """Digest of all that a calibrator is fitted on."""
    content = hashlib.sha256(np.ascontiguousarray(val.logits).tobytes() + val.label.astype(np.int64).tobytes())
    for array in (val.features, *(head or ())):
        if array is not None:
            content.update(np.ascontiguousarray(array).tobytes())
    return content.hexdigest()


def _fit(
    entry: FittedCalibrator, seed: int, val: Logits, head: Head | None, content: str, folder: Path, trace: bool
) -> _Fitted:
    """Load the calibrator from its cache, under the digest ``content`` of what it is fitted on, or fit and cache it.

    With ``trace`` its ``fit_history`` has the course of the fit, too, which is kept in the record beside it.
    """
    identity = fingerprint.digest([entry["fingerprint"], seed, content])
    path = folder / f"{entry['name']}-seed{seed}-{identity}.safetensors"
    record = path.with_suffix(".json")
    if path.is_file():
        try:
            calibrator, cost = load_calibrator(path), read_record(record)
            course = cost.pop(COURSE, {})
            if course or not trace:
                calibrator.fit_history.update(course)
                return _Fitted(calibrator, {**cost, "cached": True})
        except CalgridError as error:
            log(f"{error} It is fitted again.")
    calibrator = _fitted(entry, seed, val, head, trace)
    cost = {"fit_seed": seed, "seconds": calibrator.fit_seconds}
    course = {name: value for name, value in calibrator.fit_history.items() if name == "loss" or "trace_" in name}
    write_record(record, {**cost, COURSE: course} if trace else cost)
    calibrator.save(path)
    return _Fitted(calibrator, {**cost, "cached": False})


def _fitted(entry: FittedCalibrator, seed: int, rows: Logits, head: Head | None, trace: bool = False) -> Calibrator:
    given = {"seed": seed} if entry["stochastic"] else {}
    options = {**entry["options"], **given, **({"trace": True} if trace else {})}
    return build_calibrator(entry["id"], **options).fit(rows.logits, rows.label, rows.features, head)


class _Scorer:
    """Scores calibrated probabilities of one checkpoint on everything but the rows that fitted them."""

    def __init__(self, spec: CalibrateSpec, checkpoint: str, data: Mapping[str, Logits]) -> None:
        self.spec, self.checkpoint, self.data = spec, checkpoint, data
        val = data["val"]
        purposes = rows_by_purpose(val.label, spec["disjoint_validation"])
        self.fit, self.choice = val.rows(purposes[FIT]), val.rows(purposes[CHOICE])
        self.statistics = spec["statistics"]
        self.resampled: list[Row] = []
        self.refit_warnings: dict[str, list[str]] = {}

    def _base(self, entry: FittedCalibrator, seed: int, fit_on: str) -> Row:
        return {
            **self.spec["key"],
            "checkpoint": self.checkpoint,
            "calibrator": entry["name"],
            "fit_on": fit_on,
            "fit_seed": seed,
            "fingerprint": self.spec["run_fingerprint"],
        }

    def score(self, entry: FittedCalibrator, seed: int, calibrator: Calibrator) -> Iterator[Row]:
        """All rows of a calibrator that was fitted on val."""
        base = self._base(entry, seed, "val")
        if entry["name"] == "none" or self.spec["disjoint_validation"]:  # else it was fitted on these rows
            probs = self._predict(calibrator, self.choice)
            yield from self._labelled({**base, "split": "val"}, probs, self.choice.label)
        test = self.data["test"]
        probs = self._predict(calibrator, test)
        yield from self._labelled({**base, "split": "test"}, probs, test.label, intervals=True)
        self._resample(base, probs, test.label)
        if test.distribution is not None:
            yield from self._soft({**base, "split": "test"}, probs, test.distribution)
        for family in self.spec["families"]:
            shifted = self.data[family]
            if not self._can_score(entry, shifted, family):
                continue
            if family.startswith(OOD_PREFIX):
                place = {**base, "split": "ood", "shift": family}
                yield from self._ood(place, probs, self._predict(calibrator, shifted))
            elif "val" in self.spec["fit_on"]:
                shifted_probs = self._predict(calibrator, shifted)
                for shift, severity, rows in shifted.settings():
                    place = {**base, "split": "shift", "shift": shift, "severity": severity}
                    yield from self._labelled(place, shifted_probs[rows], shifted.label[rows])

    def score_same_shift(self, entry: FittedCalibrator, seed: int, head: Head | None) -> Iterator[Row]:
        """Rows of a calibrator that is fitted anew on a part of each corruption and severity.

        The draw depends on the seed and the setting alone, so that all calibrators are fitted and scored on the same
        rows. These fits are not kept: there is one for each setting.
        """
        base = self._base(entry, seed, SAME_SHIFT)
        for family in self.spec["families"]:
            shifted = self.data[family]
            if family.startswith(OOD_PREFIX) or not self._can_score(entry, shifted, family):
                continue
            for shift, severity, rows in shifted.settings():
                fit, rest = same_shift_rows(rows, seed, shift, severity)
                calibrator = _fitted(entry, seed, shifted.rows(fit), head)
                for warning in calibrator.fit_history["warnings"][:1]:
                    self.refit_warnings.setdefault(entry["name"], []).append(f"{shift} {severity}: {warning}")
                scored = shifted.rows(rest)
                place = {**base, "split": "shift", "shift": shift, "severity": severity}
                yield from self._labelled(place, self._predict(calibrator, scored), scored.label)

    def _can_score(self, entry: FittedCalibrator, shifted: Logits, family: str) -> bool:
        if "features" in entry["needs"] and shifted.features is None:
            log(f"{entry['name']} is not scored on {family}: its logits file holds no features (export_features: all).")
            return False
        return True

    @staticmethod
    def _predict(calibrator: Calibrator, data: Logits) -> np.ndarray:
        return calibrator.predict_proba(data.logits, features=data.features)

    def _resample(self, base: Row, probs: np.ndarray, labels: np.ndarray) -> None:
        """Keep each metric of the clean test split in each of the resamples that all calibrators share."""
        count = self.statistics.get("paired_resamples", 0)
        if count:
            options = {"n_resamples": count, "seed": self.statistics["seed"], "n_bins": self.statistics["bins"]}
            drawn = resampled_metrics(probs, labels, **options)
            about = {name: base[name] for name in ("checkpoint", "calibrator", "fit_seed")}
            self.resampled += [{**about, "metric": metric, "draws": values} for metric, values in drawn.items()]

    def _bootstrap_options(self) -> dict[str, Any]:
        names = {"n_resamples": "bootstrap", "level": "level", "seed": "seed"}
        return {option: self.statistics[key] for option, key in names.items()}

    def _labelled(self, base: Row, probs: np.ndarray, labels: np.ndarray, intervals: bool = False) -> Iterator[Row]:
        values = evaluate(probs, labels, n_bins=self.statistics["bins"])
        bounds: Mapping[str, Interval] = {}
        if intervals and self.statistics["bootstrap"]:
            bounds = bootstrap(probs, labels, n_bins=self.statistics["bins"], **self._bootstrap_options())
        yield from _rows(base, values, bounds, len(labels))

    def _soft(self, base: Row, probs: np.ndarray, distribution: np.ndarray) -> Iterator[Row]:
        bins, bounds = self.statistics["bins"], {}
        if self.statistics["bootstrap"]:
            bounds = bootstrap_soft(probs, distribution, n_bins=bins, **self._bootstrap_options())
        yield from _rows(base, evaluate_soft(probs, distribution, n_bins=bins), bounds, len(probs))

    def _ood(self, base: Row, probs: np.ndarray, shifted: np.ndarray) -> Iterator[Row]:
        bounds: Mapping[str, Interval] = {}
        if self.statistics["bootstrap"]:
            bounds = bootstrap_ood(probs, shifted, **self._bootstrap_options())
        yield from _rows(base, evaluate_ood(probs, shifted), bounds, len(shifted))


def same_shift_rows(rows: np.ndarray, seed: int, shift: str, severity: int) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows ``(n,)`` of a setting at random into those that fit (20 %, at least one) and those that score."""
    order = np.random.default_rng([seed, zlib.crc32(shift.encode()), severity]).permutation(rows)
    count = max(1, round(SAME_SHIFT_SHARE * len(rows)))
    return np.sort(order[:count]), np.sort(order[count:])


def _rows(base: Row, values: Mapping[str, float], bounds: Mapping[str, Interval], count: int) -> Iterator[Row]:
    for metric, value in values.items():
        low, high = bounds.get(metric, NO_INTERVAL)
        yield {**base, "metric": metric, "value": value, "ci_low": low, "ci_high": high, "n_samples": count}


def _warnings(metrics: pd.DataFrame) -> list[str]:
    """Calibrators that are far worse than none on the clean test split, in words."""
    nll = metrics[(metrics["metric"] == "nll") & (metrics["split"] == "test")]
    bare = nll[nll["calibrator"] == "none"].set_index("checkpoint")["value"]
    worse = nll[nll["value"] > WORSE * nll["checkpoint"].map(bare)]
    return [
        f"{row.calibrator} (seed {row.fit_seed}, {row.checkpoint} checkpoint) has an NLL of {row.value:.4g}, more than "
        f"{WORSE:g} times that of the uncalibrated logits, {bare[row.checkpoint]:.4g}."
        for row in worse.itertuples()
    ]


def _fit_warnings(fits: list[Row]) -> list[str]:
    """What the fits say of themselves: bounds that hold them, optimisers that did not converge, ends of grids."""
    return [
        f"{fit['calibrator']} (seed {fit['fit_seed']}, {fit['checkpoint']} checkpoint): {warning}"
        for fit in fits
        for warning in fit["warnings"]
    ]


def _tidy(rows: list[Row]) -> pd.DataFrame:
    """Rows as a frame with the columns and types of ``metrics.parquet``."""
    filled = [{"shift": "", "severity": 0, **row} for row in rows]
    return pd.DataFrame(filled, columns=list(METRIC_COLUMNS)).astype(dict(METRIC_COLUMNS))
