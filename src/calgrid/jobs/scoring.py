"""Scores of the calibrators of a run on one part of its rows; rows that fit a calibrator never
score it.
"""

import functools
import hashlib
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.calibrators.base import SAME_SHIFT_SHARE
from calgrid.components import fingerprint
from calgrid.components.metrics import plugin_metrics
from calgrid.errors import CalgridError, DataError, StateError
from calgrid.jobs.diagnostics import shown_calibrators
from calgrid.jobs.label_counts import label_distribution
from calgrid.metrics import (
    bootstrap,
    bootstrap_ood,
    bootstrap_soft,
    evaluate,
    evaluate_ood,
    evaluate_soft,
    resampled_metrics,
)
from calgrid.progress import log
from calgrid.specs import CalibrateSpec, FittedCalibrator
from calgrid.storage.arrays import Head, read_head
from calgrid.storage.layout import OOD_PREFIX, head_file, logits_file
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.records import check_fingerprint, read_record, sha256_of, write_record
from calgrid.storage.schema import SAME_SHIFT
from calgrid.training.val_rows import CHOICE, FIT, rows_by_purpose

Row = dict[str, Any]
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))
#: maximum logits and features that a calibrator processes at once, because it copies them several
#: times
PREDICTED_NUMBERS = 2**21
#: seconds; a result that took longer is stored, so that a killed job continues from it
KEPT_SECONDS = 1.0
#: key of the loss and the traces in the record of a fitted calibrator
COURSE = "course"


@dataclass
class Fitted:
    """A calibrator fitted on val, and the cost of its fit."""

    calibrator: Calibrator
    cost: dict[str, Any]


@dataclass(frozen=True)
class Work:
    """Facts common to all parts."""

    spec: CalibrateSpec
    #: folder of the logits
    predicted: Path
    #: folder of fitted calibrators, shared by all calibrations of the run
    fits: Path
    #: working folder of the stage, which stores intermediate results
    folder: Path
    #: digest of all input files of the stage
    inputs: str


class Part(NamedTuple):
    """Rows in memory at once and the calibrators to run on them, as indices into the specification.

    ``family`` is -1 for the clean splits.
    """

    checkpoint: int
    calibrators: tuple[int, ...]
    family: int = -1
    group: int = 0


def score_part(work: Work, part: Part) -> list[Row]:
    """Results of each calibrator of a part, with their seconds; stored ones of an earlier attempt
    are used.
    """
    scorer, names = Scorer(work, part), [entry["name"] for entry in work.spec["calibrators"]]
    about = {"checkpoint": scorer.checkpoint, "family": scorer.family, "group": part.group}
    found: list[Row] = []
    for number in part.calibrators:
        place = [work.inputs, part.checkpoint, number, part.family, part.group]
        path = work.folder / f"kept-{fingerprint.digest(place)}.json"
        try:
            found.append(read_record(path))
            continue
        except DataError:  # missing or damaged
            begin = time.monotonic()
        results = list(scorer.score(number))
        seconds = time.monotonic() - begin
        found.append({**about, "calibrator": names[number], "seconds": seconds, "results": results})
        if seconds > KEPT_SECONDS:
            write_record(path, found[-1])
    return found


class Scorer:
    """Scores calibrators on the rows of one part, which are read at first use and held in memory."""

    def __init__(self, work: Work, part: Part) -> None:
        self.spec, self.predicted, self.part = work.spec, work.predicted, part
        self.fits = work.fits
        self.checkpoint = self.spec["checkpoints"][part.checkpoint]
        self.statistics = self.spec["statistics"]
        self.plugin_metrics = plugin_metrics(self.statistics.get("metrics", ()))

    def _read(self, name: str, group: int | None = None) -> Logits:
        path = self.predicted / logits_file(self.checkpoint, name)
        data = read_logits(path, group)
        check_fingerprint(data.metadata, self.spec["logits"][name], f"logits file {path}")
        return data

    @functools.cached_property
    def _val(self) -> dict[str, Logits]:
        val = self._read("val")
        purposes = rows_by_purpose(val.label, self.spec["disjoint_validation"])
        return {purpose: val.rows(purposes[purpose]) for purpose in (FIT, CHOICE)}

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
    def shifted(self) -> Logits:
        """Rows of the shift family."""
        return self._read(self.family, self.part.group)

    @functools.cached_property
    def head(self) -> Head | None:
        """The last linear layer of the network, if it was exported."""
        return read_head(self.predicted / head_file(self.checkpoint), self.spec["run_fingerprint"])

    @functools.cached_property
    def _content(self) -> str:
        """Digest of the data that calibrators are fitted on."""
        values = (
            self.fit.logits,
            self.fit.label.astype(np.int64),
            self.fit.features,
            *(self.head or ()),
        )
        content = hashlib.sha256()
        for array in values:
            if array is not None:
                content.update(np.ascontiguousarray(array).tobytes())
        return content.hexdigest()

    @property
    def family(self) -> str:
        """Name of the shift family, empty for the clean splits."""
        return self.spec["families"][self.part.family] if self.part.family >= 0 else ""

    def fitted(self, entry: FittedCalibrator, seed: int) -> Fitted:
        """The calibrator fitted on val, from the cache in the folder of the run if possible.

        For calibrators of figures, ``fit_history`` contains the losses and traces of the fit, and
        the record stores them.
        """
        is_shown = entry["name"] in shown_calibrators(self.spec["calibrators"]) and seed == min(
            entry["seeds"]
        )
        trace = is_shown and "trace" in entry["options"]
        identity = fingerprint.digest([entry["fingerprint"], seed, self._content])
        folder = self.fits / self.checkpoint
        path = folder / f"{entry['name']}-seed{seed}-{identity}.safetensors"
        record = path.with_suffix(".json")
        if path.is_file():
            try:
                cost = read_record(record)
                if cost.pop("fit", None) != identity or cost.pop("sha256", None) != sha256_of(path):
                    raise StateError(f"The fitted calibrator {path} is that of another fit.")
                calibrator = load_calibrator(path)
                course = cost.pop(COURSE, {})
                if course or not trace:
                    calibrator.fit_history.update(course)
                    return Fitted(calibrator, {**cost, "cached": True})
            except CalgridError as error:
                log(f"{error} The calibrator is fitted again.")
        calibrator = self._fit(entry, seed, self.fit, trace)
        cost = {"fit_seed": seed, "seconds": calibrator.fit_seconds}
        course = {
            name: value
            for name, value in calibrator.fit_history.items()
            if name == "loss" or "trace_" in name
        }
        calibrator.save(path)
        facts = {**cost, "fit": identity, "sha256": sha256_of(path)}
        write_record(record, {**facts, COURSE: course} if trace else facts)
        return Fitted(calibrator, {**cost, "cached": False})

    def _fit(
        self, entry: FittedCalibrator, seed: int, rows: Logits, trace: bool = False
    ) -> Calibrator:
        options = {**entry["options"], **({"trace": True} if trace else {})}
        return build_calibrator(entry["id"], seed=seed, **options).fit(
            rows.logits, rows.label, rows.features, self.head
        )

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
        """Results of the calibrator with index ``number``, as JSON-like dictionaries.

        Keys: ``place`` (sort key), ``rows`` (of metrics), ``fits`` (costs of fits on val),
        ``draws`` (metrics of resamples), ``warnings`` (of fits under ``same_shift``).
        """
        entry, family = self.spec["calibrators"][number], self.part.family
        clean, ood = family < 0, self.family.startswith(OOD_PREFIX)
        if not (clean or self._can_score(entry)):
            return
        where = [self.part.checkpoint, number]
        for order, seed in (
            enumerate(entry["seeds"]) if clean or ood or "val" in self.spec["fit_on"] else ()
        ):
            fitted = self.fitted(entry, seed)
            base, place = (
                self._base(entry, seed, "val"),
                [*where, 0, order, family, self.part.group],
            )
            if clean:
                yield self._on_clean(entry, base, place, fitted)
            elif ood:
                yield _result(place, self._on_ood(base, fitted.calibrator))
            else:
                yield _result(place, self._on_shift(base, fitted.calibrator))
        if not (clean or ood) and SAME_SHIFT in self.spec["fit_on"]:
            for order, draw in enumerate(self.spec["draws"]):
                yield self._on_same_shift(entry, draw, [*where, 1, order, family, self.part.group])

    def _on_clean(
        self, entry: FittedCalibrator, base: Row, place: list[int], fitted: Fitted
    ) -> Row:
        calibrator, choice, rows = fitted.calibrator, self._val[CHOICE], list[Row]()
        about = {name: base[name] for name in ("checkpoint", "calibrator")}
        fits = [{**about, **fitted.cost, "warnings": calibrator.fit_history["warnings"]}]
        if (
            entry["name"] == "none" or self.spec["disjoint_validation"]
        ):  # otherwise it was fitted on these rows
            probs = self._predict(calibrator, choice)
            rows += self._labelled({**base, "split": "val"}, probs, choice.label)
        test, place_of = self.test, {**base, "split": "test"}
        probs = self._predict(calibrator, test)
        rows += self._labelled(place_of, probs, test.label, intervals=True)
        draws = self._resampled({**about, "fit_seed": base["fit_seed"]}, probs, test.label)
        if test.distribution is not None:
            rows += self._soft(place_of, probs, test.distribution)
        return _result(place, rows, fits=fits, draws=draws)

    def _on_ood(self, base: Row, calibrator: Calibrator) -> Iterator[Row]:
        test, shifted = (self._predict(calibrator, data) for data in (self.test, self.shifted))
        bounds = self._bounds(bootstrap_ood, test, shifted)
        place = {**base, "split": "ood", "shift": self.family}
        yield from _rows(place, evaluate_ood(test, shifted), bounds, len(shifted))

    def _on_shift(self, base: Row, calibrator: Calibrator) -> Iterator[Row]:
        probs = self._predict(calibrator, self.shifted)
        for shift, severity, rows in self.shifted.settings():
            place = {**base, "split": "shift", "shift": shift, "severity": severity}
            yield from self._labelled(place, probs[rows], self.shifted.label[rows])

    def _on_same_shift(self, entry: FittedCalibrator, draw: int, place: list[int]) -> Row:
        """Results of fits on a part of each corruption and severity, which are not cached.

        The parts depend only on seed and setting, so that all calibrators use the same rows.
        """
        base, data = self._base(entry, draw, SAME_SHIFT), self.shifted
        if "features" not in entry["needs"]:
            data = replace(data, features=None)  # avoids copies
        found: list[Row] = []
        warnings: list[str] = []
        for shift, severity, rows in data.settings():
            fit, rest = same_shift_rows(rows, draw, shift, severity)
            calibrator = self._fit(entry, draw, data.rows(fit))
            warnings += [
                f"{shift} {severity}: {text}" for text in calibrator.fit_history["warnings"][:1]
            ]
            scored = data.rows(rest)
            where = {**base, "split": "shift", "shift": shift, "severity": severity}
            found += self._labelled(where, self._predict(calibrator, scored), scored.label)
        return _result(place, found, warnings=warnings)

    def _can_score(self, entry: FittedCalibrator) -> bool:
        if "features" not in entry["needs"] or self.shifted.features is not None:
            return True
        if self.part.group == 0:
            log(
                f"{entry['name']} is not scored on {self.family}: the logits file has no features "
                "(export_features: all)."
            )
        return False

    @staticmethod
    def _predict(calibrator: Calibrator, data: Logits) -> np.ndarray:
        """Probabilities (N, K), computed in blocks of rows."""
        width = data.logits.shape[1] + (0 if data.features is None else data.features.shape[1])
        result, most = np.empty(data.logits.shape), max(1, PREDICTED_NUMBERS // width)
        for begin in range(0, len(result), most):
            rows = slice(begin, begin + most)
            features = None if data.features is None else data.features[rows]
            result[rows] = calibrator.predict_proba(data.logits[rows], features=features)
        return result

    def _resampled(self, about: Row, probs: np.ndarray, labels: np.ndarray) -> list[Row]:
        """Each metric of the clean test split on resamples that are the same for all calibrators."""
        count = self.statistics.get("paired_resamples", 0)
        if not count:
            return []
        drawn = resampled_metrics(
            probs, labels, n_resamples=count, seed=self.statistics["seed"], **self._options
        )
        return [
            {**about, "metric": metric, "draws": values.tolist()}
            for metric, values in drawn.items()
        ]

    @property
    def _options(self) -> dict[str, Any]:
        return {"n_bins": self.statistics["bins"], "further": self.plugin_metrics}

    def _bounds(
        self, function: Callable[..., Mapping[str, Interval]], *data: np.ndarray, **options: Any
    ) -> Mapping[str, Interval]:
        """Bootstrap intervals by metric; empty if the study wants none."""
        statistics = self.statistics
        if not statistics["bootstrap"]:
            return {}
        drawn = {
            "n_resamples": statistics["bootstrap"],
            "level": statistics["level"],
            "seed": statistics["seed"],
        }
        return function(*data, **drawn, **options)

    def _labelled(
        self, base: Row, probs: np.ndarray, labels: np.ndarray, intervals: bool = False
    ) -> Iterator[Row]:
        bounds = self._bounds(bootstrap, probs, labels, **self._options) if intervals else {}
        yield from _rows(base, evaluate(probs, labels, **self._options), bounds, len(labels))

    def _soft(self, base: Row, probs: np.ndarray, distribution: np.ndarray) -> Iterator[Row]:
        bins = self.statistics["bins"]
        bounds = self._bounds(bootstrap_soft, probs, distribution, n_bins=bins)
        yield from _rows(base, evaluate_soft(probs, distribution, n_bins=bins), bounds, len(probs))


def same_shift_rows(
    rows: np.ndarray, seed: int, shift: str, severity: int
) -> tuple[np.ndarray, np.ndarray]:
    """Split the rows (n,) of a setting at random into rows to fit (20 %, at least one) and rows to
    score.
    """
    order = np.random.default_rng([seed, zlib.crc32(shift.encode()), severity]).permutation(rows)
    count = max(1, round(SAME_SHIFT_SHARE * len(rows)))
    return np.sort(order[:count]), np.sort(order[count:])


def _result(place: list[int], rows: Iterable[Row], **further: list[Any]) -> Row:
    return {"place": place, "rows": list(rows), "fits": [], "draws": [], "warnings": [], **further}


def _rows(
    base: Row, values: Mapping[str, float], bounds: Mapping[str, Interval], count: int
) -> Iterator[Row]:
    for metric, value in values.items():
        low, high = bounds.get(metric, NO_INTERVAL)
        yield {
            **base,
            "metric": metric,
            "value": value,
            "ci_low": low,
            "ci_high": high,
            "n_samples": count,
        }
