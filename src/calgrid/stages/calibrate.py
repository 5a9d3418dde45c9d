"""Stage ``calibrate``: fit every calibrator on val, score it on test, shifts and out-of-distribution sets.

All calibrators of a run are handled in one process: starting Python costs more than most fits. A fitted calibrator is
kept beside the run under a fingerprint of its code, options, seed and data, so that one calibrator more, or another
study, fits nothing again.
"""

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calgrid import fingerprint
from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.conventions import OOD_PREFIX
from calgrid.errors import CalgridError, StateError
from calgrid.metrics import bootstrap, bootstrap_ood, evaluate, evaluate_ood
from calgrid.progress import Progress, log
from calgrid.storage.atomic import read_json, write_json
from calgrid.storage.logits import Logits, read_logits
from calgrid.storage.stage import run_stage
from calgrid.storage.tables import write_frame

OUTPUTS = ("metrics.parquet", "calibrate.json")
Row = dict[str, Any]
Interval = tuple[float, float]
NO_INTERVAL: Interval = (float("nan"), float("nan"))


def calibrate(spec: Mapping[str, Any], run: Path, out: Path) -> bool:
    """Fit and score all calibrators of a run; publish ``metrics.parquet`` and ``calibrate.json`` in ``out``.

    Parameters
    ----------
    spec : resolved (``calgrid.configuration.plan``): key, checkpoints, families, calibrators, statistics.
    run : folder of the run, which holds ``logits/``.

    Returns
    -------
    False if another process had already written the same files, else True.
    """

    def produce(folder: Path) -> None:
        begin = time.monotonic()
        rows: list[Row] = []
        fits: list[Row] = []
        total = len(spec["checkpoints"]) * sum(len(entry["seeds"]) for entry in spec["calibrators"])
        with Progress("calibrate", total, "calibrator") as progress:
            for checkpoint in spec["checkpoints"]:
                scorer = _Scorer(spec, checkpoint, _read_all(spec, run, checkpoint))
                for entry in spec["calibrators"]:
                    for seed in entry["seeds"]:
                        fitted = _fit(entry, seed, scorer.val, run / "calibrators" / checkpoint)
                        fits.append({"checkpoint": checkpoint, "calibrator": entry["name"], **fitted.cost})
                        rows.extend(scorer.score(entry["name"], seed, fitted.calibrator))
                        progress.advance()
        write_frame(folder / "metrics.parquet", _tidy(rows), {"fingerprint": spec["fingerprint"]})
        record = {"spec": dict(spec), "fits": fits, "seconds": time.monotonic() - begin}
        write_json(folder / "calibrate.json", record)

    return run_stage(out, "calibrate", spec["fingerprint"], OUTPUTS, produce)


def _read_all(spec: Mapping[str, Any], run: Path, checkpoint: str) -> dict[str, Logits]:
    data = {}
    for name in ("val", "test", *spec["families"]):
        path = run / "logits" / checkpoint / f"{name}.parquet"
        data[name] = read_logits(path)
        found = data[name].metadata.get("fingerprint")
        if found != spec["logits_fingerprint"]:
            raise StateError(
                f"The logits file {path} belongs to another configuration or code version (fingerprint {found}, "
                f"expected {spec['logits_fingerprint']}): delete it and run again."
            )
    return data


@dataclass
class _Fitted:
    calibrator: Calibrator
    cost: Row


def _fit(entry: Mapping[str, Any], seed: int, val: Logits, folder: Path) -> _Fitted:
    """Load the calibrator from its cache or fit and cache it."""
    content = hashlib.sha256(np.ascontiguousarray(val.logits).tobytes() + val.label.astype(np.int64).tobytes())
    if val.features is not None:
        content.update(np.ascontiguousarray(val.features).tobytes())
    identity = fingerprint.digest([entry["fingerprint"], seed, content.hexdigest()])
    path = folder / f"{entry['name']}-seed{seed}-{identity}.safetensors"
    record = path.with_suffix(".json")
    if path.is_file():
        try:
            return _Fitted(load_calibrator(path), {**read_json(record), "cached": True})
        except CalgridError as error:
            log(f"{error} It is fitted again.")
    options = dict(entry["options"])
    if entry["stochastic"]:
        options["seed"] = seed
    calibrator = build_calibrator(entry["id"], **options).fit(val.logits, val.label, features=val.features)
    cost: Row = {"fit_seed": seed, "seconds": calibrator.fit_seconds}
    write_json(record, cost)
    calibrator.save(path)
    return _Fitted(calibrator, {**cost, "cached": False})


class _Scorer:
    """Scores calibrated probabilities of one checkpoint on everything but the rows that fitted them."""

    def __init__(self, spec: Mapping[str, Any], checkpoint: str, data: Mapping[str, Logits]) -> None:
        self.spec, self.checkpoint, self.data = spec, checkpoint, data
        self.val = data["val"]
        self.statistics = spec["statistics"]

    def score(self, name: str, seed: int, calibrator: Calibrator) -> Iterator[Row]:
        """All rows of one fitted calibrator."""
        base = {
            **self.spec["key"],
            "checkpoint": self.checkpoint,
            "calibrator": name,
            "fit_on": "val",
            "fit_seed": seed,
            "fingerprint": self.spec["run_fingerprint"],
        }
        if name == "none":  # every other calibrator has seen these rows
            yield from self._labelled({**base, "split": "val"}, self._predict(calibrator, self.val), self.val.label)
        test = self.data["test"]
        probs = self._predict(calibrator, test)
        yield from self._labelled({**base, "split": "test"}, probs, test.label, intervals=True)
        for family in self.spec["families"]:
            shifted = self.data[family]
            shifted_probs = self._predict(calibrator, shifted)
            if family.startswith(OOD_PREFIX):
                yield from self._ood({**base, "split": "ood", "shift": family}, probs, shifted_probs)
                continue
            for shift, severity, rows in shifted.settings():
                place = {**base, "split": "shift", "shift": shift, "severity": severity}
                yield from self._labelled(place, shifted_probs[rows], shifted.label[rows])

    @staticmethod
    def _predict(calibrator: Calibrator, data: Logits) -> np.ndarray:
        return calibrator.predict_proba(data.logits, features=data.features)

    def _bootstrap_options(self) -> dict[str, Any]:
        names = {"n_resamples": "bootstrap", "level": "level", "seed": "seed"}
        return {option: self.statistics[key] for option, key in names.items()}

    def _labelled(self, base: Row, probs: np.ndarray, labels: np.ndarray, intervals: bool = False) -> Iterator[Row]:
        values = evaluate(probs, labels, n_bins=self.statistics["bins"])
        bounds: Mapping[str, Interval] = {}
        if intervals and self.statistics["bootstrap"]:
            bounds = bootstrap(probs, labels, n_bins=self.statistics["bins"], **self._bootstrap_options())
        yield from _rows(base, values, bounds, len(labels))

    def _ood(self, base: Row, probs: np.ndarray, shifted: np.ndarray) -> Iterator[Row]:
        bounds: Mapping[str, Interval] = {}
        if self.statistics["bootstrap"]:
            bounds = bootstrap_ood(probs, shifted, **self._bootstrap_options())
        yield from _rows(base, evaluate_ood(probs, shifted), bounds, len(shifted))


def _rows(base: Row, values: Mapping[str, float], bounds: Mapping[str, Interval], count: int) -> Iterator[Row]:
    for metric, value in values.items():
        low, high = bounds.get(metric, NO_INTERVAL)
        yield {**base, "metric": metric, "value": value, "ci_low": low, "ci_high": high, "n_samples": count}


COLUMNS = {
    "protocol": "str",
    "dataset": "str",
    "backbone": "str",
    "method": "str",
    "seed": "int64",
    "checkpoint": "str",
    "calibrator": "str",
    "fit_on": "str",
    "fit_seed": "int64",
    "split": "str",
    "shift": "str",
    "severity": "int8",
    "metric": "str",
    "value": "float64",
    "ci_low": "float64",
    "ci_high": "float64",
    "n_samples": "int32",
    "fingerprint": "str",
}


def _tidy(rows: list[Row]) -> pd.DataFrame:
    """Rows as a frame with the columns and types of ``metrics.parquet``."""
    filled = [{"shift": "", "severity": 0, **row} for row in rows]
    return pd.DataFrame(filled, columns=list(COLUMNS)).astype(COLUMNS)
