"""Commands for a person with logits files: calibrate one with another, and print metrics."""

import argparse
import json
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
import yaml

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.errors import ConfigError
from calgrid.metrics import METRICS, bootstrap, evaluate
from calgrid.registry import spec
from calgrid.stages.external import read_any
from calgrid.storage.logits import Logits, write_logits

#: smallest log-probability in a calibrated file: finite in float32, far below any probability that matters
LOG_FLOOR = -1e4
SHOWN = ("accuracy", "nll", "brier", "ece", "ece_debiased", "ece_null", "aece", "cece", "mce")


def calibrate(options: argparse.Namespace) -> None:
    """Fit (or load) a calibrator, apply it, print metrics before and after."""
    if (options.fit is None) == (options.load is None):
        raise ConfigError("Give either --fit (a labelled file) or --load (a calibrator saved before).")
    target = read_any(options.apply, options.kind)
    calibrator = _calibrator(options)
    before = build_calibrator("none").fit(target.logits, target.label).predict_proba(target.logits)
    after = calibrator.predict_proba(target.logits, features=target.features)
    if options.save:
        calibrator.save(options.save)
    if options.out:
        with np.errstate(divide="ignore"):
            log_probs = np.maximum(np.log(after), LOG_FLOOR).astype(np.float32)
        metadata = {**target.metadata, "calibrator": options.calibrator, "n_classes": log_probs.shape[1]}
        write_logits(options.out, Logits(target.index, target.label, log_probs, metadata=metadata))
    columns = {"none": before, options.calibrator: after}
    _print_comparison({name: _scores(probs, target.label, options) for name, probs in columns.items()})


def _calibrator(options: argparse.Namespace) -> Calibrator:
    if options.load:
        return load_calibrator(options.load)
    entry = spec("calibrator", options.calibrator, "--calibrator")
    overrides = dict(_assignment(text) for text in options.set)
    if "seed" in entry.options:
        overrides.setdefault("seed", options.seed)
    data = read_any(options.fit, options.kind)
    return build_calibrator(options.calibrator, **overrides).fit(data.logits, data.label, features=data.features)


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write NAME=VALUE.")
    return name, yaml.safe_load(value)


def metrics(options: argparse.Namespace) -> None:
    """Print all metrics of one file."""
    data = read_any(options.file, options.kind)
    probs = build_calibrator("none").fit(data.logits, data.label).predict_proba(data.logits)
    scores = _scores(probs, data.label, options)
    if options.json:
        content = {name: {"value": v, "ci_low": low, "ci_high": high} for name, (v, low, high) in scores.items()}
        sys.stdout.write(json.dumps(content, indent=2) + "\n")
        return
    sys.stdout.write(f"{len(data)} rows, {probs.shape[1]} classes\n")
    for name, (value, low, high) in scores.items():
        sys.stdout.write(f"{name:14s} {value:10.5f}  {_interval(low, high):22s} {METRICS[name].summary}\n")


def _scores(
    probs: np.ndarray, labels: np.ndarray, options: argparse.Namespace
) -> dict[str, tuple[float, float, float]]:
    values = evaluate(probs, labels, n_bins=options.bins)
    bounds = bootstrap(probs, labels, n_resamples=options.bootstrap, n_bins=options.bins) if options.bootstrap else {}
    return {name: (value, *bounds.get(name, (np.nan, np.nan))) for name, value in values.items()}


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"[{low:.5f}, {high:.5f}]"


def _print_comparison(scores: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> None:
    names = list(scores)
    sys.stdout.write(f"{'':14s}" + "".join(f"{name:>34s}" for name in names) + "\n")
    for metric in SHOWN:
        cells = [scores[name][metric] for name in names]
        line = "".join(f"{value:>12.5f} {_interval(low, high):>21s}" for value, low, high in cells)
        sys.stdout.write(f"{metric:14s}{line}\n")
