"""Scores of the calibrators of a run on one chunk of its rows; rows that fit a calibrator never
score it.
"""

import functools
import math
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.calibrators.base import DRAWN_SHARE
from calgrid.components.metrics import plugin_metrics
from calgrid.components.options import Options
from calgrid.errors import CalgridError, DataError, StateError
from calgrid.jobs.conformal import halves, set_rows, uniform
from calgrid.jobs.diagnostics import class_scores, confidence_bins
from calgrid.jobs.label_counts import label_distribution
from calgrid.jobs.ood import closeness, network_scores
from calgrid.metrics import (
    Metric,
    Output,
    Predictions,
    check_probabilities,
    evaluate,
    evaluate_soft,
)
from calgrid.metrics.conformal import fit_sets
from calgrid.metrics.intervals import (
    DECIDING_RESAMPLES,
    Resampled,
    interval,
    resampled,
    resampled_means,
    resampled_scores,
    resampled_soft,
    tails_of,
)
from calgrid.metrics.table import LABELLED, OOD, OOD_NETWORK, SOFT, ood_scores
from calgrid.papers.smart import diagnostics as smart
from calgrid.progress import log
from calgrid.storage.arrays import Head, digest_of_arrays, read_head
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.publish import KEPT_SECONDS, Call
from calgrid.storage.records import (
    OOD_PREFIX,
    TRAIN_SPLIT,
    digest_of,
    head_file,
    logits_file,
    read_record,
    sha256_of,
    write_record,
)
from calgrid.storage.schema import (
    BINS,
    CLASSES,
    CONFORMAL,
    METRICS,
    REDRAWN,
    RESAMPLE_PLACE,
    RESAMPLES,
    SAME_SHIFT,
    Row,
)
from calgrid.storage.specs import CalibrateSpec, FittedCalibrator
from calgrid.training.val_rows import CHOICE, FIT, rows_by_purpose

#: folder of fitted calibrators, in that of the run, shared by all its calibrations
FITS = "fits"
#: key of the loss and the traces in the record of a fitted calibrator
COURSE = "course"
#: digits of the key of a stored fit, and of a stored result
KEY_LENGTH = 16
#: most logits and features in a call of a calibrator, which copies them several times
PREDICTED_NUMBERS = 2**21


@dataclass(frozen=True)
class ScoringJob:
    """Shared inputs of all chunks of a calibration.

    Attributes
    ----------
    predicted : folder of the logits.
    folder : working folder, which stores results of an interrupted attempt.
    inputs : digest of all input files.
    """

    call: Call
    predicted: Path
    folder: Path
    inputs: str

    @property
    def spec(self) -> CalibrateSpec:
        """Specification of the calibration."""
        return self.call.spec


class Chunk(NamedTuple):
    """Rows in memory at once and the calibrators to run on them, as indices into the specification.

    ``family`` is -1 for the clean splits.
    """

    checkpoint: int
    calibrators: tuple[int, ...]
    family: int = -1
    group: int = 0


@dataclass(order=True)
class Result:
    """Scores of one fitted calibrator on the rows of a chunk, in the order of the output.

    Attributes
    ----------
    checkpoint, calibrator, seed, family : indices into the specification.
    drawn : whether the calibrator was fitted on drawn rows; ``seed`` is then the seed of the draw.
    group : row group of the shift family.
    rows : file of the job, ``metrics.parquet``, -> rows of it.
    fits : cost of the fit on val, if this chunk reports it.
    warnings : of fits on drawn rows.
    """

    checkpoint: int
    calibrator: int
    drawn: bool
    seed: int
    family: int
    group: int
    rows: dict[str, list[Row]] = field(default_factory=lambda: defaultdict(list), compare=False)
    fits: list[Row] = field(default_factory=list, compare=False)
    warnings: list[str] = field(default_factory=list, compare=False)


@dataclass
class ChunkResult:
    """Results of one calibrator on a chunk, and their cost."""

    checkpoint: str
    family: str
    group: int
    calibrator: str
    seconds: float
    results: list[Result]

    @property
    def cost(self) -> Row:
        """All but the results."""
        return {name: value for name, value in vars(self).items() if name != "results"}

    @classmethod
    def read(cls, path: Path) -> "ChunkResult":
        """Read the result of an earlier attempt; raise DataError if it is missing or damaged."""
        content = read_record(path)
        results = [Result(**stored) for stored in content.pop("results")]
        return cls(results=results, **content)


def score_chunk(job: ScoringJob, chunk: Chunk) -> list[ChunkResult]:
    """Results of each calibrator of a chunk; stored ones of an earlier attempt are used."""
    scorer = Scorer(job, chunk)
    scored = []
    for number in chunk.calibrators:
        place = [chunk.checkpoint, number, chunk.family, chunk.group]
        key = digest_of([job.spec, job.inputs, place])
        path = job.folder / f"kept-{key[:KEY_LENGTH]}.json"
        try:
            scored.append(ChunkResult.read(path))
            continue
        except DataError:  # missing or damaged
            begin = time.monotonic()
        results = list(scorer.score(number))
        seconds = time.monotonic() - begin
        name = job.spec["calibrators"][number]["name"]
        result = ChunkResult(scorer.checkpoint, scorer.family, chunk.group, name, seconds, results)
        scored.append(result)
        if seconds > KEPT_SECONDS:
            # dataclasses.asdict would copy every number
            kept = {**result.cost, "results": [vars(each) for each in results]}
            write_record(path, kept, indent=None)
    return scored


def output_of(calibrator: Calibrator, data: Logits) -> Output:
    """Output (N, K) of a calibrator, computed in blocks of rows."""
    width = data.logits.shape[1] + (0 if data.features is None else data.features.shape[1])
    blocks, most = [], max(1, PREDICTED_NUMBERS // width)
    for begin in range(0, len(data), most):
        rows = slice(begin, begin + most)
        features = None if data.features is None else data.features[rows]
        blocks.append(calibrator.predict_output(data.logits[rows], features=features))
    return Output.joined(blocks)


class Scorer:
    """Scores calibrators on the rows of one chunk, read at first use and held in memory."""

    def __init__(self, job: ScoringJob, chunk: Chunk) -> None:
        self.job, self.chunk, self.spec = job, chunk, job.spec
        self.checkpoint = self.spec["checkpoints"][chunk.checkpoint]
        self.statistics = self.spec["statistics"]
        self.plugin_metrics = plugin_metrics(self.statistics.get("metrics", ()))

    def _read(self, name: str, group: int | None = None) -> Logits:
        path = self.job.predicted / logits_file(self.checkpoint, name)
        return read_logits(path, group, self.spec["logits"][name])

    @functools.cached_property
    def _val(self) -> dict[str, Logits]:
        val = self._read("val")
        purposes = rows_by_purpose(val.label, self.spec["disjoint_validation"])
        return {purpose: self._kept(val.rows(purposes[purpose])) for purpose in (FIT, CHOICE)}

    def _kept(self, rows: Logits) -> Logits:
        """Rows and logits of the classes that count on the shift family."""
        return rows if self._classes is None else rows.of_classes(self._classes)

    @functools.cached_property
    def _classes(self) -> np.ndarray | None:
        """Classes of a family that lacks some; None for all."""
        if self.family not in self.spec["some_classes"]:
            return None
        return np.unique(self._family_rows.label)

    @functools.cached_property
    def _family_rows(self) -> Logits:
        return self._read(self.family, self.chunk.group)

    @property
    def fit(self) -> Logits:
        """Rows of val for fits."""
        return self._val[FIT]

    @functools.cached_property
    def test(self) -> Logits:
        """The clean test split."""
        test = self._read("test")
        if self.spec["label_counts"]:
            test.distribution = label_distribution(self.spec["label_counts"], test)
        return test

    @functools.cached_property
    def train(self) -> Logits | None:
        """Training images, if they were exported."""
        return self._read(TRAIN_SPLIT) if TRAIN_SPLIT in self.spec["logits"] else None

    @functools.cached_property
    def _clean(self) -> Logits:
        """Rows of val and test."""
        return self._read("val").joined(self.test)

    @functools.cached_property
    def shifted(self) -> Logits:
        """Rows of the shift family."""
        return self._kept(self._family_rows)

    @functools.cached_property
    def head(self) -> Head | None:
        """The last linear layer of the network, if it was exported."""
        path = self.job.predicted / head_file(self.checkpoint)
        head = read_head(path, self.spec["run_fingerprint"])
        if head is None or self._classes is None:
            return head
        weight, bias = head
        return weight[self._classes], bias[self._classes]

    @property
    def family(self) -> str:
        """Name of the shift family, empty for the clean splits."""
        return self.spec["families"][self.chunk.family] if self.chunk.family >= 0 else ""

    def fitted(
        self, entry: FittedCalibrator, seed: int, rows: Logits | None = None
    ) -> tuple[Calibrator, Row]:
        """The calibrator fitted on val, or some ``rows`` of it, from the cache in the folder of the
        run if possible; and the cost of its fit.

        For calibrators that are diagnosed, ``fit_history`` contains the losses and traces of the
        fit, and the record stores them.
        """
        diagnosed = smart.calibrators(self.spec["calibrators"])
        traced = entry["name"] in diagnosed and "trace" in entry["options"]
        trace = traced and seed == min(entry["seeds"]) and rows is None
        options = {**entry["options"], **({"trace": True} if trace else {})}
        rows = self._with_distances(self.fit if rows is None else rows, entry["needs"])
        key = self._key(entry["fingerprint"], seed, options, rows)
        folder = self.job.call.out.parent / FITS / self.checkpoint
        path = folder / f"{entry['name']}-seed{seed}-{key}.safetensors"
        record = path.with_suffix(".json")
        if path.is_file():
            try:
                cost = read_record(record)
                if cost.pop("fit", None) != key or cost.pop("sha256", None) != sha256_of(path):
                    raise StateError(f"The fitted calibrator {path} is that of another fit.")
                calibrator = load_calibrator(path)
                calibrator.fit_history.update(cost.pop(COURSE, {}))
                return calibrator, {**cost, "cached": True}
            except CalgridError as error:
                log(f"{error} The calibrator is fitted again.")
        calibrator = self._fit(entry["id"], seed, options, rows)
        cost = {"fit_seed": seed, "seconds": calibrator.fit_seconds}
        course = {
            name: value
            for name, value in calibrator.fit_history.items()
            if name == "loss" or "trace_" in name
        }
        self.job.call.check()  # imported code, before a fit is stored
        calibrator.save(path)
        facts = {**cost, "fit": key, "sha256": sha256_of(path)}
        write_record(record, {**facts, COURSE: course} if trace else facts)
        return calibrator, {**cost, "cached": False}

    def _key(self, code: str, seed: int, options: Options, rows: Logits) -> str:
        """Key of the cache: all inputs of :meth:`_fit`, and the code of the calibrator."""
        weight, bias = self.head or (None, None)
        arrays = {"logits": rows.logits, "labels": rows.label, "features": rows.features}
        about = {"code": code, "seed": seed, "options": options}
        return digest_of_arrays({**arrays, "weight": weight, "bias": bias}, about)[:KEY_LENGTH]

    def _fit(self, id: str, seed: int, options: Options, rows: Logits) -> Calibrator:
        """Fit a calibrator on ``rows``, with distances as features if it needs them."""
        calibrator = build_calibrator(id, seed=seed, **options)
        return calibrator.fit(rows.logits, rows.label, rows.features, self.head)

    def _base(self, entry: FittedCalibrator, seed: int, fit_on: str) -> Row:
        return {
            **self.spec["key"],
            "checkpoint": self.checkpoint,
            "calibrator": entry["name"],
            "fit_on": fit_on,
            "fit_seed": seed,
            "fingerprint": self.spec["run_fingerprint"],
        }

    def score(self, number: int) -> Iterator[Result]:
        """Results of the calibrator with index ``number``."""
        entry, chunk = self.spec["calibrators"][number], self.chunk
        clean = chunk.family < 0
        ood = self.family.startswith(OOD_PREFIX)
        if not clean and not self._can_score(entry):
            return
        if clean or ood or "val" in self.spec["fit_on"]:
            for position, seed in enumerate(entry["seeds"]):
                place = chunk.checkpoint, number, False, position, chunk.family, chunk.group
                result = Result(*place)
                calibrator, cost = self.fitted(entry, seed)
                base = self._base(entry, seed, "val")
                if clean:
                    self._on_clean(result, base, entry, calibrator, cost)
                elif ood:
                    self._on_ood(result, base, calibrator)
                else:
                    self._on_shift(result, base, calibrator)
                if not ood and self.statistics.get("conformal"):
                    result.rows[CONFORMAL] += self._conformal(entry, seed, base)
                yield result
        way = REDRAWN if clean else SAME_SHIFT
        if not ood and way in self.spec["fit_on"]:
            for position, draw in enumerate(self.spec["draws"]):
                place = chunk.checkpoint, number, True, position, chunk.family, chunk.group
                result = Result(*place)
                self._on_drawn(result, self._base(entry, draw, way), entry, draw)
                yield result

    def _on_clean(
        self, result: Result, base: Row, entry: FittedCalibrator, calibrator: Calibrator, cost: Row
    ) -> None:
        choice, test = self._val[CHOICE], self.test
        about = {name: base[name] for name in ("checkpoint", "calibrator")}
        # a calibrator is never scored on rows of its fit
        if entry["name"] == "none" or self.spec["disjoint_validation"]:
            probs = self._predict(calibrator, choice)
            self._add_labelled(result, {**base, "split": "val"}, probs, choice.label)
        on_test = {**base, "split": "test"}
        predictions = check_probabilities(self._predict(calibrator, test), test.label)
        warnings = list(calibrator.fit_history["warnings"])
        if predictions.n_impossible:
            warnings.append(
                f"{predictions.n_impossible} test rows give their label the probability 0; the NLL "
                f"counts it as {predictions.least:.2g}."
            )
        converged = calibrator.fit_history["converged"]
        fit = {**about, **cost, "converged": converged, "warnings": warnings}
        result.fits.append(fit)
        self._add_labelled(result, on_test, predictions, test.label, on_test=True)
        if test.distribution is not None:
            output = Output(predictions.probs, predictions.logs)
            self._add_soft(result, on_test, output, test.distribution)
        if base["fit_seed"] == min(entry["seeds"]):
            n_bins = self.statistics["bins"]
            names = test.metadata.get("classes")
            classes = class_scores(predictions, names).assign(**about)
            result.rows[CLASSES] += classes.to_dict("records")
            if entry["name"] != "none":
                bins = confidence_bins(predictions, n_bins).assign(**about)
                result.rows[BINS] += bins.to_dict("records")

    def _on_ood(self, result: Result, base: Row, calibrator: Calibrator) -> None:
        test, shifted = (self._predict(calibrator, data) for data in (self.test, self.shifted))
        scores = ood_scores(test, shifted)
        if base["calibrator"] == "none":  # those of logits and features belong to no calibrator
            scores |= network_scores(self.family, self.test, self.shifted, self.train, self.head)
        metrics = {**OOD, **OOD_NETWORK}
        metrics = {name: metric for name, metric in metrics.items() if metric.score in scores}
        values = {name: metric.function(*scores[metric.score]) for name, metric in metrics.items()}
        found = resampled_scores(metrics, scores, **self._draws) if self._draws else None
        place, n_shown = {**base, "split": "ood", "shift": self.family}, len(shifted)
        self._add(result, place, values, metrics, found, min(len(test), n_shown), n_shown=n_shown)

    def _on_shift(self, result: Result, base: Row, calibrator: Calibrator) -> None:
        probs = self._predict(calibrator, self.shifted)
        for shift, severity, rows in self.shifted.conditions():
            place = {**base, "split": "shift", "shift": shift, "severity": severity}
            self._add_labelled(result, place, probs[rows], self.shifted.label[rows])

    def _on_drawn(self, result: Result, base: Row, entry: FittedCalibrator, draw: int) -> None:
        """Scores of fits on a part of each corruption and severity, or of val and test together;
        not cached.

        The parts depend only on seed and condition, so that all calibrators use the same rows.
        """
        data = self._clean if base["fit_on"] == REDRAWN else self.shifted
        if "features" not in entry["needs"]:
            data = replace(data, features=None)  # avoids copies
        for shift, severity, those in data.conditions():
            fit, rest = drawn_rows(those, draw, shift, severity)
            rows = self._with_distances(data.rows(fit), entry["needs"])
            calibrator = self._fit(entry["id"], draw, entry["options"], rows)
            for warning in calibrator.fit_history["warnings"][:1]:
                about = f"{shift} {severity}: {warning}" if shift else warning
                result.warnings.append(about)
            scored = data.rows(rest)
            split = "shift" if shift else "test"
            where = {**base, "split": split, "shift": shift, "severity": severity}
            self._add_labelled(result, where, self._predict(calibrator, scored), scored.label)

    def _conformal(self, entry: FittedCalibrator, seed: int, base: Row) -> Iterator[Row]:
        """Rows of conformal sets on the rows of the chunk.

        A calibrator is fitted on another half of the rows than its sets.
        """
        seeding = self.statistics["seed"]
        first, second = halves(len(self.fit), seeding)
        calibrator, _ = self.fitted(entry, seed, self.fit.rows(first))
        held = self.fit.rows(second)
        drawn = uniform(len(held), seeding, "thresholds")
        probs, names = self._predict(calibrator, held).probs, self.statistics["conformal"]
        rules = fit_sets(probs, held.label, drawn, names)
        clean = self.chunk.family < 0
        data = self.test if clean else self.shifted
        probs = self._predict(calibrator, data).probs
        conditions = data.conditions()
        severest = max(severity for _, severity, _ in conditions)
        for shift, severity, rows in conditions:
            split = "test" if clean else "shift"
            u = uniform(len(rows), seeding, shift or split, severity, self.chunk.group)
            # of milder corruptions too, they would take most of the time of a calibration
            bootstrap = self._draws if severity == severest else None
            level = self.statistics["level"]
            for row in set_rows(rules, probs[rows], data.label[rows], u, bootstrap, level):
                yield {
                    **{name: base[name] for name in ("checkpoint", "calibrator", "fit_seed")},
                    "split": split,
                    "shift": shift,
                    "severity": severity,
                    **row,
                }

    def _can_score(self, entry: FittedCalibrator) -> bool:
        if "features" not in entry["needs"] or self.shifted.features is not None:
            return True
        if self.chunk.group == 0:
            log(
                f"{entry['name']} is not scored on {self.family}: the logits file has no features "
                "(export_features: all)."
            )
        return False

    def _with_distances(self, rows: Logits, needs: Sequence[str]) -> Logits:
        """Rows, with squared distances to the training images as features if needed."""
        if "training features" not in needs or self.train is None or rows.features is None:
            return rows
        return replace(rows, features=-closeness(rows.features, self.train)[:, None])

    def _predict(self, calibrator: Calibrator, data: Logits) -> Output:
        return output_of(calibrator, self._with_distances(data, calibrator.needs))

    @property
    def _draws(self) -> dict[str, int] | None:
        """Options of the bootstrap; None if the study wants no intervals."""
        count = self.statistics["bootstrap"]
        return {"n_resamples": count, "seed": self.statistics["seed"]} if count else None

    def _add_labelled(
        self,
        result: Result,
        place: Row,
        probs: Output | Predictions,
        labels: np.ndarray,
        on_test: bool = False,
    ) -> None:
        """Add scores, with intervals of all metrics on the test split, of means and ``squared_ce``
        elsewhere.
        """
        checked = check_probabilities(probs, labels)  # metrics share intermediate results
        seed, bins = self.statistics["seed"], self.statistics["bins"]
        values = evaluate(checked, labels, n_bins=bins, further=self.plugin_metrics, costly=on_test)
        metrics = {**LABELLED, **{metric.id: metric for metric in self.plugin_metrics}}
        found = deciding = resampled_means(checked, labels, seed=seed, n_bins=bins)
        if on_test and self._draws:
            drawn = [metric for metric in self.plugin_metrics if metric.interval != "none"]
            found = resampled(checked, labels, n_bins=bins, further=drawn, **self._draws)
            if self.statistics["bootstrap"] >= DECIDING_RESAMPLES:
                deciding = found
        self._add(result, place, values, metrics, found, len(labels), deciding=deciding)

    def _add_soft(
        self, result: Result, place: Row, probs: Output, distribution: np.ndarray
    ) -> None:
        bins = {"n_bins": self.statistics["bins"]}
        found = resampled_soft(probs, distribution, **bins, **self._draws) if self._draws else None
        values = evaluate_soft(probs, distribution, **bins)
        self._add(result, place, values, SOFT, found, len(probs))

    def _add(
        self,
        result: Result,
        place: Row,
        values: Mapping[str, float],
        metrics: Mapping[str, Metric],
        found: Resampled | None,
        n_samples: int,
        *,
        n_shown: int | None = None,
        deciding: Resampled | None = None,
    ) -> None:
        """Add values with their intervals, if the study wants them, and resamples for verdicts:
        ``deciding``, or else ``found``.

        ``n_samples`` is the number of samples of the smallest set, ``n_shown`` that of the rows.
        """
        tails = tails_of(self.statistics["level"])
        shown = found if self._draws and n_samples > 1 else None
        for name, value in values.items():
            low = high = math.nan
            if shown is not None and (metrics[name].interval_of or name) in shown.drawn:
                low, high = interval(metrics[name], shown, tails)
            row = {"metric": name, "value": value, "ci_low": low, "ci_high": high}
            result.rows[METRICS].append({**place, **row, "n_samples": n_shown or n_samples})
        deciding = deciding or found
        # each draw of rows scores other images: resamples would not be common
        if deciding is not None and place["fit_on"] == "val":
            result.rows[RESAMPLES] += _draw_rows(place, deciding, metrics)


def _draw_rows(base: Row, found: Resampled, metrics: Mapping[str, Metric]) -> list[Row]:
    """Rows of ``resamples.parquet`` of the metrics with verdicts and enough resamples."""
    place = {"shift": "", "severity": 0, **base}
    rows = []
    for name, drawn in found.drawn.items():
        if metrics[name].decided_by != name or len(drawn) < DECIDING_RESAMPLES:
            continue
        parts = {"draws": drawn - found.values[name], "pairs": np.empty(0)}
        if metrics[name].interval == "unbiased":
            parts["pairs"] = found.noise[name]
        kept = {
            key: each[:DECIDING_RESAMPLES].astype(np.float32).tolist()
            for key, each in parts.items()
        }
        rows.append({**{key: place[key] for key in RESAMPLE_PLACE}, "metric": name, **kept})
    return rows


def drawn_rows(
    rows: np.ndarray, seed: int, shift: str, severity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows (n,) of a condition at random into rows to fit (20 %, at least one) and rows
    to score.
    """
    order = np.random.default_rng([seed, zlib.crc32(shift.encode()), severity]).permutation(rows)
    count = max(1, round(DRAWN_SHARE * len(rows)))
    return np.sort(order[:count]), np.sort(order[count:])
