"""Stage ``calibrate``: fit every calibrator on val, score it on test, shifts and out-of-distribution sets.

Under ``fit_on: same_shift`` a calibrator is fitted again for each corruption and severity, on a random 20 % of its
rows, and scored on the other 80 % (the protocol of SMART for the ImageNet family).

The work goes from part to part: the clean splits first, then each row group of each family, so that memory holds one
part in each process, however many corruptions there are. Within a part all calibrators are handled in one process:
starting Python costs more than most fits. What one of them made of a part is kept in the stage's working folder where
it took more than a second: a job that was killed goes on from there, to the same bytes. A calibrator that was fitted
on val is kept beside the run under a fingerprint of its code, options, seed and data, so that one calibrator more, or
another study, fits nothing again.
"""

import functools
import hashlib
import time
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from calgrid import fingerprint
from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.conventions import OOD_PREFIX, SAME_SHIFT, SAME_SHIFT_SHARE, WORSE
from calgrid.errors import CalgridError, DataError, StateError
from calgrid.metrics import (
    bootstrap,
    bootstrap_ood,
    bootstrap_soft,
    evaluate,
    evaluate_ood,
    evaluate_soft,
    resampled_metrics,
)
from calgrid.parallel import processes
from calgrid.progress import Progress, log
from calgrid.specs import CalibrateSpec, FittedCalibrator
from calgrid.stages.diagnostics import Diagnostics, shown_calibrators
from calgrid.stages.label_counts import label_distribution
from calgrid.storage import provenance
from calgrid.storage.head import Head, read_head
from calgrid.storage.layout import head_file, logits_file, logits_files
from calgrid.storage.logits import Logits, count_groups, read_logits
from calgrid.storage.records import CALIBRATE, PREDICT, Record, digest_of, read_record, write_record
from calgrid.storage.schema import METRIC_COLUMNS, PART_EXTRAS, RESAMPLE_COLUMNS, RESAMPLES
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import write_frame
from calgrid.val_rows import CHOICE, FIT, rows_by_purpose

OUTPUTS = ("metrics.parquet",)
#: key of the record of a fitted calibrator with the course of its fit
COURSE = "course"
#: what took fewer seconds than these is not kept for a next attempt
KEPT_SECONDS = 1.0
Row = dict[str, Any]
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))


def calibrate(spec: CalibrateSpec, run: Path, out: Path, threads: int = 1) -> bool:
    """Fit and score all calibrators of a run; publish ``metrics.parquet`` and ``calibrate.json`` in ``out``.

    With ``paired_resamples`` also ``resamples.parquet``: the values of each metric on the same resamples of the clean
    test split for each calibrator that was fitted on val and each of its seeds.

    Parameters
    ----------
    spec : what to fit and score (:class:`calgrid.specs.CalibrateSpec`).
    run : folder of the run, which holds ``logits/``.
    threads : processes that fit and score, beside this one if there are several; the bytes do not depend on them.

    Returns
    -------
    False if another process had already written the same files, else True.
    """
    names = [*logits_files(spec["checkpoints"], spec["families"]), *map(head_file, spec["checkpoints"])]
    predicted = Record.read(run, PREDICT)

    inputs = {name: predicted.sha256(name) for name in names if name in predicted.files}

    def produce(folder: Path) -> dict[str, Any]:
        begin = time.monotonic()
        work = _Work(spec, run, folder, digest_of(inputs))
        parts = _score_all(work, predicted, threads)
        scored = sorted((result for part in parts for result in part.pop("results")), key=lambda each: each["place"])
        metrics = _tidy([row for each in scored for row in each["rows"]])
        fits = [fit for each in scored for fit in each["fits"]]
        draws = [draw for each in scored for draw in each["draws"]]
        warnings = [*_warnings(metrics), *_fit_warnings(fits), *_refit_warnings(spec, scored)]
        for warning in warnings:
            log(f"Warning: {warning}")
        write_frame(folder / "metrics.parquet", metrics, {"fingerprint": spec["fingerprint"]})
        _write_diagnostics(work)
        if draws:
            frame = pd.DataFrame(draws, columns=list(RESAMPLE_COLUMNS))
            write_frame(folder / RESAMPLES, frame, {"fingerprint": spec["fingerprint"]})
        return {
            "spec": dict(spec),
            "fingerprint": spec["fingerprint"],
            "environment": provenance.describe("numpy", "scipy", "pandas"),
            "fits": fits,
            "parts": parts,
            "warnings": warnings,
            "seconds": time.monotonic() - begin,
            "peak_memory_mb": provenance.peak_memory_mb(0 if threads == 1 else threads),
        }

    return run_stage(
        out,
        "calibrate",
        spec["fingerprint"],
        OUTPUTS,
        produce,
        record=CALIBRATE,
        inputs=inputs,
        optional=PART_EXTRAS,
    )


@dataclass(frozen=True)
class _Work:
    """What all parts have in common.

    Attributes
    ----------
    folder : working folder of the stage, where results are kept for a next attempt.
    inputs : digest of all files that the stage reads.
    """

    spec: CalibrateSpec
    run: Path
    folder: Path
    inputs: str


class _Part(NamedTuple):
    """Rows that are in memory together, and the calibrators that fit and score on them, by their places in the plan.

    ``family`` is -1 for the clean splits.
    """

    checkpoint: int
    calibrators: tuple[int, ...]
    family: int = -1
    group: int = 0


def _score_all(work: _Work, predicted: Record, threads: int) -> list[Row]:
    """What every calibrator makes of every part: see :func:`_score_part`."""
    spec = work.spec
    for name in logits_files(spec["checkpoints"], spec["families"]):
        predicted.verified(name, "logits file")
    everyone = tuple(range(len(spec["calibrators"])))
    # with several processes each calibrator is work of its own on the clean splits, of which there is one part
    alike = [(number,) for number in everyone] if threads > 1 else [everyone]
    clean = [_Part(checkpoint, some) for checkpoint in range(len(spec["checkpoints"])) for some in alike]
    shifted = [
        _Part(checkpoint, everyone, family, group)
        for checkpoint, name in enumerate(spec["checkpoints"])
        for family, of in enumerate(spec["families"])
        for group in range(count_groups(work.run / logits_file(name, of)))
    ]
    found: list[Row] = []
    with Progress("calibrate", len(clean) + len(shifted), "part") as progress, processes(threads) as in_processes:
        for parts in (clean, shifted):  # the second finds what the first has fitted
            for scored in in_processes(functools.partial(_score_part, work), parts):
                found += scored
                progress.advance()
    return found


def _score_part(work: _Work, part: _Part) -> list[Row]:
    """Results of each calibrator of a part, with the seconds that they took; those that an earlier attempt kept."""
    scorer, names = _Scorer(work, part), [entry["name"] for entry in work.spec["calibrators"]]
    about = {"checkpoint": scorer.checkpoint, "family": scorer.family, "group": part.group}
    found: list[Row] = []
    for number in part.calibrators:
        place = [work.inputs, part.checkpoint, number, part.family, part.group]
        path = work.folder / f"kept-{fingerprint.digest(place)}.json"
        try:
            found.append(read_record(path))
            continue
        except DataError:  # not there, or damaged
            begin = time.monotonic()
        results = list(scorer.score(number))
        seconds = time.monotonic() - begin
        found.append({**about, "calibrator": names[number], "seconds": seconds, "results": results})
        if seconds > KEPT_SECONDS:
            write_record(path, found[-1])
    return found


def _write_diagnostics(work: _Work) -> None:
    """Write what figures show of the calibrators that were fitted on val."""
    spec, shown = work.spec, shown_calibrators(work.spec["calibrators"])
    diagnostics = Diagnostics(spec["statistics"]["bins"])
    for number, checkpoint in enumerate(spec["checkpoints"]):
        scorer = _Scorer(work, _Part(number, ()))
        calibrators = {
            entry["name"]: scorer.fitted(entry, min(entry["seeds"])).calibrator
            for entry in spec["calibrators"]
            if entry["name"] in shown
        }
        diagnostics.add(checkpoint, scorer.fit, scorer.test, calibrators)
    diagnostics.write(work.folder, spec["fingerprint"])


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
    """Scores calibrated probabilities on the rows of one part, but for those that fitted them.

    Rows are read when they are first needed, and held as long as this object.
    """

    def __init__(self, work: _Work, part: _Part) -> None:
        self.spec, self.run, self.part = work.spec, work.run, part
        self.checkpoint = self.spec["checkpoints"][part.checkpoint]
        self.statistics = self.spec["statistics"]

    def _read(self, name: str, group: int | None = None) -> Logits:
        path = self.run / logits_file(self.checkpoint, name)
        data = read_logits(path, group)
        found, expected = data.metadata.get("fingerprint"), self.spec["logits_fingerprint"]
        if found != expected:
            raise StateError(
                f"The logits file {path} belongs to another configuration or code version (fingerprint {found}, "
                f"expected {expected}): delete it and run again."
            )
        return data

    @functools.cached_property
    def _val(self) -> dict[str, Logits]:
        val = self._read("val")
        purposes = rows_by_purpose(val.label, self.spec["disjoint_validation"])
        return {purpose: val.rows(purposes[purpose]) for purpose in (FIT, CHOICE)}

    @property
    def fit(self) -> Logits:
        """Rows of val that fit."""
        return self._val[FIT]

    @functools.cached_property
    def test(self) -> Logits:
        """The clean test split."""
        test = self._read("test")
        if self.spec["label_counts"]:
            test.distribution = label_distribution(self.spec["label_counts"], test)
        return test

    @functools.cached_property
    def shifted(self) -> Logits:
        """Rows of the part's family."""
        return self._read(self.family, self.part.group)

    @functools.cached_property
    def head(self) -> Head | None:
        """The network's last layer, if it is linear and was exported."""
        return read_head(self.run / head_file(self.checkpoint), self.spec["logits_fingerprint"])

    @functools.cached_property
    def _content(self) -> str:
        return _digest(self.fit, self.head)

    @property
    def family(self) -> str:
        """Name of the part's family, empty for the clean splits."""
        return self.spec["families"][self.part.family] if self.part.family >= 0 else ""

    def fitted(self, entry: FittedCalibrator, seed: int) -> _Fitted:
        """The calibrator as it is fitted on val, from its cache if it is there."""
        is_shown = entry["name"] in shown_calibrators(self.spec["calibrators"]) and seed == min(entry["seeds"])
        trace = is_shown and "trace" in entry["options"]
        folder = self.run / "calibrators" / self.checkpoint
        return _fit(entry, seed, self.fit, self.head, self._content, folder, trace)

    def _base(self, entry: FittedCalibrator, seed: int, fit_on: str) -> Row:
        return {
            **self.spec["key"],
            "checkpoint": self.checkpoint,
            "calibrator": entry["name"],
            "fit_on": fit_on,
            "fit_seed": seed,
            "fingerprint": self.spec["run_fingerprint"],
        }

    def score(self, number: int) -> Iterator[Row]:
        """Results of the calibrator at this place: JSON-like dictionaries.

        ``place`` sorts them, ``rows`` are those of the metrics, ``fits`` costs of fits on val, ``draws`` metrics of
        resamples, ``warnings`` those of fits under ``same_shift``.
        """
        entry, family = self.spec["calibrators"][number], self.part.family
        clean, ood = family < 0, self.family.startswith(OOD_PREFIX)
        if not (clean or self._can_score(entry)):
            return
        where = [self.part.checkpoint, number]
        for order, seed in enumerate(entry["seeds"]) if clean or ood or "val" in self.spec["fit_on"] else ():
            fitted = self.fitted(entry, seed)
            base, place = self._base(entry, seed, "val"), [*where, 0, order, family, self.part.group]
            if clean:
                yield self._on_clean(entry, base, place, fitted)
            elif ood:
                yield _result(place, self._on_ood(base, fitted.calibrator))
            else:
                yield _result(place, self._on_shift(base, fitted.calibrator))
        if not (clean or ood) and SAME_SHIFT in self.spec["fit_on"]:
            for order, draw in enumerate(self.spec["draws"]):
                yield self._on_same_shift(entry, draw, [*where, 1, order, family, self.part.group])

    def _on_clean(self, entry: FittedCalibrator, base: Row, place: list[int], fitted: _Fitted) -> Row:
        calibrator, choice, rows = fitted.calibrator, self._val[CHOICE], list[Row]()
        about = {name: base[name] for name in ("checkpoint", "calibrator")}
        fits = [{**about, **fitted.cost, "warnings": calibrator.fit_history["warnings"]}]
        if entry["name"] == "none" or self.spec["disjoint_validation"]:  # else it was fitted on these rows
            probs = self._predict(calibrator, choice)
            rows += self._labelled({**base, "split": "val"}, probs, choice.label)
        test, place_of = self.test, {**base, "split": "test"}
        probs = self._predict(calibrator, test)
        rows += self._labelled(place_of, probs, test.label, intervals=True)
        draws = self._resampled({**about, "fit_seed": base["fit_seed"]}, probs, test.label)
        if test.distribution is not None:
            rows += self._soft(place_of, probs, test.distribution)
        return _result(place, rows, fits, draws)

    def _on_ood(self, base: Row, calibrator: Calibrator) -> Iterator[Row]:
        place = {**base, "split": "ood", "shift": self.family}
        probs = (self._predict(calibrator, data) for data in (self.test, self.shifted))
        yield from self._ood(place, *probs)

    def _on_shift(self, base: Row, calibrator: Calibrator) -> Iterator[Row]:
        probs = self._predict(calibrator, self.shifted)
        for shift, severity, rows in self.shifted.settings():
            place = {**base, "split": "shift", "shift": shift, "severity": severity}
            yield from self._labelled(place, probs[rows], self.shifted.label[rows])

    def _on_same_shift(self, entry: FittedCalibrator, draw: int, place: list[int]) -> Row:
        """Rows of a calibrator that is fitted anew on a part of each corruption and severity.

        The draw depends on the seed and the setting alone, so that all calibrators are fitted and scored on the same
        rows. These fits are not kept: there is one for each setting.
        """
        base, data = self._base(entry, draw, SAME_SHIFT), self.shifted
        if "features" not in entry["needs"]:
            data = replace(data, features=None)  # copied for nothing otherwise
        found: list[Row] = []
        warnings: list[str] = []
        for shift, severity, rows in data.settings():
            fit, rest = same_shift_rows(rows, draw, shift, severity)
            calibrator = _fitted(entry, draw, data.rows(fit), self.head)
            warnings += [f"{shift} {severity}: {text}" for text in calibrator.fit_history["warnings"][:1]]
            scored = data.rows(rest)
            where = {**base, "split": "shift", "shift": shift, "severity": severity}
            found += self._labelled(where, self._predict(calibrator, scored), scored.label)
        return _result(place, found, warnings=warnings)

    def _can_score(self, entry: FittedCalibrator) -> bool:
        if "features" not in entry["needs"] or self.shifted.features is not None:
            return True
        if self.part.group == 0:
            log(
                f"{entry['name']} is not scored on {self.family}: its logits file holds no features "
                "(export_features: all)."
            )
        return False

    @staticmethod
    def _predict(calibrator: Calibrator, data: Logits) -> np.ndarray:
        return calibrator.predict_proba(data.logits, features=data.features)

    def _resampled(self, about: Row, probs: np.ndarray, labels: np.ndarray) -> list[Row]:
        """Each metric of the clean test split in each of the resamples that all calibrators share."""
        count = self.statistics.get("paired_resamples", 0)
        if not count:
            return []
        options = {"n_resamples": count, "seed": self.statistics["seed"], "n_bins": self.statistics["bins"]}
        drawn = resampled_metrics(probs, labels, **options)
        return [{**about, "metric": metric, "draws": values.tolist()} for metric, values in drawn.items()]

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


def _result(
    place: list[int],
    rows: Iterable[Row],
    fits: list[Row] | None = None,
    draws: list[Row] | None = None,
    warnings: list[str] | None = None,
) -> Row:
    lists = {"rows": list(rows), "fits": fits or [], "draws": draws or [], "warnings": warnings or []}
    return {"place": place, **lists}


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


def _refit_warnings(spec: CalibrateSpec, scored: Iterable[Row]) -> list[str]:
    """What the fits under ``same_shift`` say, in one sentence a calibrator."""
    found: dict[tuple[str, str], list[str]] = {}
    for each in scored:
        checkpoint, calibrator = each["place"][:2]
        names = spec["checkpoints"][checkpoint], spec["calibrators"][calibrator]["name"]
        found.setdefault(names, []).extend(each["warnings"])
    return [
        f"{name} (same shift, {checkpoint} checkpoint): {len(warnings)} fits warn, first that on {warnings[0]}"
        for (checkpoint, name), warnings in found.items()
        if warnings
    ]


def _tidy(rows: list[Row]) -> pd.DataFrame:
    """Rows as a frame with the columns and types of ``metrics.parquet``."""
    filled = [{"shift": "", "severity": 0, **row} for row in rows]
    return pd.DataFrame(filled, columns=list(METRIC_COLUMNS)).astype(dict(METRIC_COLUMNS))
