"""``calgrid calibrate`` and ``calgrid metrics``: commands for logits files."""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from calgrid.calibrators import Calibrator, build_calibrator, load_calibrator
from calgrid.calibrators.base import WORSE
from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.files.logits import predicted, read_any, read_head_arrays
from calgrid.files.ranking import Ranked, rank_calibrators, usable
from calgrid.metrics import (
    Metric,
    bootstrap,
    bootstrap_soft,
    check_probabilities,
    evaluate,
    evaluate_soft,
)
from calgrid.plugin_metrics import find_metric, own_metrics
from calgrid.progress import log
from calgrid.storage.atomic import require_writable
from calgrid.storage.logits import Logits, write_logits

#: default metric of a ranking
NLL = "nll"
#: value of --calibrator that ranks all calibrators whose inputs are given
ALL = "all"
#: smallest log-probability in a calibrated file: finite in float32
LOG_FLOOR = -1e4
SHOWN = ("accuracy", "nll", "brier", "ece_debiased", "ece", "ece_null", "aece", "cece", "mce")
#: metrics shown in the ranking, in addition to the difference in the ranking metric
RANKING_SHOWN = ("nll", "brier", "ece_debiased", "ece", "ece_null", "accuracy")


def read(path: Path, labels: Path | None, options: argparse.Namespace) -> Logits:
    """Read a file with the options of the command line."""
    return read_any(
        path,
        options.kind,
        labels,
        values_key=options.values_key,
        label_key=options.label_key,
        classes=options.classes,
        binary=options.binary,
    )


def calibrator_names(text: str) -> list[str]:
    """Names in ``ID,ID,...``, each once."""
    return list(dict.fromkeys(filter(None, map(str.strip, text.split(",")))))


def calibrate(options: argparse.Namespace) -> None:
    """Fit (or load) a calibrator, apply it, and print metrics before and after; several are ranked
    first.
    """
    names = calibrator_names(options.calibrator or "")
    _check_options(options, names)
    target = read(options.apply, options.apply_labels, options) if options.apply else None
    found: dict[str, Any] = {}
    calibrator = _loaded(options, names) if options.load else _fitted(options, names, target, found)
    if calibrator is not None and target is not None:
        found |= _apply(options, calibrator, target)
    if options.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")


def _apply(options: argparse.Namespace, calibrator: Calibrator, target: Logits) -> dict[str, Any]:
    """Calibrate a file, and write and print the results; return what ``--json`` prints."""
    before = predicted(target)
    after = (
        before
        if calibrator.id == "none"
        else calibrator.predict_proba(target.logits, features=target.features)
    )
    columns = {"none": before, calibrator.id: after}
    scores = {name: _scores(probs, target.label, options) for name, probs in columns.items()}
    # Files are written last, after all inputs are checked, and only if all of them can be written.
    for path in filter(None, (options.save, options.out)):
        require_writable(path)
    if options.save:
        calibrator.save(options.save)
    if options.out:
        _write_calibrated(options.out, calibrator, target, after)
    if not options.json:
        _print_comparison(scores)
    warnings = calibrator.fit_history["warnings"]
    for warning in warnings:
        log(f"Warning: {calibrator.id}: {warning}")
    nll = {name: each["nll"][0] for name, each in scores.items()}
    if nll[calibrator.id] > WORSE * nll["none"]:
        log(
            f"Warning: {calibrator.id} has {nll[calibrator.id] / nll['none']:.1f} times the NLL of "
            f"the uncalibrated "
            "logits on the calibrated file: it overfits, or the two files come from different "
            "models or data."
        )
    if options.fit and options.fit.resolve() == options.apply.resolve():
        log(
            f"Warning: --fit and --apply are the same file, {options.apply}: metrics on rows used "
            f"for fitting are "
            "optimistic; apply the calibrator to other rows."
        )
    metrics = {name: _json_scores(each) for name, each in scores.items()}
    return {"calibrator": calibrator.id, "warnings": list(warnings), "metrics": metrics}


def _check_options(options: argparse.Namespace, names: Sequence[str]) -> None:
    """Raise ConfigError for missing or contradictory options, before anything is read or fitted."""
    if without := [
        each
        for each in ("fit", "apply")
        if getattr(options, f"{each}_labels") and not getattr(options, each)
    ]:
        raise ConfigError(
            f"--{without[0]}-labels has no effect without --{without[0]}: give both or remove it."
        )
    if (options.fit is None) == (options.load is None):
        raise ConfigError("Give either --fit (a labelled file) or --load (a saved calibrator).")
    if options.fit and not names:
        raise ConfigError(
            "Give --calibrator, the calibrator to fit, or all (see: calgrid list calibrators)."
        )
    if options.out and options.out.suffix.lower() != ".parquet":
        raise ConfigError(
            f"--out {options.out}: the calibrated file is Parquet; give it a name that ends in "
            f".parquet."
        )
    targets = {"--save": options.save, "--out": options.out}
    given = {option: path for option, path in targets.items() if path}
    if options.apply is None and (options.load or not _ranks(names)):
        raise ConfigError("Give --apply, the file to calibrate.")
    if options.apply is None and given:
        raise ConfigError(
            f"{' and '.join(given)}: a ranking without --apply writes no file; give --apply, the "
            f"file to calibrate."
        )
    if len(given) == 2 and options.save.resolve() == options.out.resolve():
        raise ConfigError(
            f"--save and --out are the same file, {options.out}: give different names."
        )
    for option, path in given.items():
        if path.is_dir():
            raise ConfigError(f"{option} {path} is a folder: give the name of a file.")
    if options.rank_by and not _ranks(names):
        raise ConfigError("--rank-by needs several calibrators: name them in --calibrator, or all.")
    if options.set and options.load:
        raise ConfigError("--set has no effect on a saved calibrator: remove --set or --load.")
    if options.set and _ranks(names):
        raise ConfigError("--set applies to a single calibrator: name one in --calibrator.")


def _write_calibrated(
    path: Path, calibrator: Calibrator, target: Logits, probabilities: np.ndarray
) -> None:
    with np.errstate(divide="ignore"):
        log_probs = np.maximum(np.log(probabilities), LOG_FLOOR).astype(np.float32)
    metadata = {**target.metadata, "calibrator": calibrator.id, "n_classes": log_probs.shape[1]}
    calibrated = Logits(
        target.index,
        target.label,
        log_probs,
        distribution=target.distribution,
        probabilities=probabilities,
        metadata=metadata,
    )
    write_logits(path, calibrated)


def _loaded(options: argparse.Namespace, names: Sequence[str]) -> Calibrator:
    calibrator = load_calibrator(options.load)
    if names not in ([], [calibrator.id]):
        raise ConfigError(
            f"--load {options.load} is a fitted '{calibrator.id}', not '{options.calibrator}': "
            f"correct one of the two."
        )
    return calibrator


def _ranks(names: Sequence[str]) -> bool:
    """Whether ``--calibrator`` names several calibrators, which are ranked."""
    return len(names) > 1 or ALL in names


def _fitted(
    options: argparse.Namespace, names: Sequence[str], target: Logits | None, found: dict[str, Any]
) -> Calibrator | None:
    """Fit a calibrator, or the best of a ranking, on all rows of --fit; None for a ranking without
    --apply.

    The ranking is added to ``found``, the content of ``--json``.
    """
    data = read(options.fit, options.fit_labels, options)
    head = read_head_arrays(options.head) if options.head else None
    id = names[0]
    if _ranks(names):
        ranking, refused = _ranking(options, names, data, head, target)
        found |= _ranking_content(ranking, refused)
        if not options.json:
            sys.stdout.write(
                _ranking_text(ranking, refused, len(data), options.folds, options.rank_by or NLL)
            )
        id = ranking[0].id
        if target is None:
            return None
    entry = registry.spec("calibrator", id, "--calibrator")
    overrides = entry.resolve(dict(_assignment(text) for text in options.set), where="--set")
    if not any(text.startswith("seed=") for text in options.set):
        overrides["seed"] = options.seed
    return build_calibrator(id, **overrides).fit(data.logits, data.label, data.features, head)


def _ranking(
    options: argparse.Namespace,
    names: Sequence[str],
    data: Logits,
    head: tuple[np.ndarray, np.ndarray] | None,
    target: Logits | None,
) -> tuple[list[Ranked], dict[str, str]]:
    """Rank calibrators by cross-validation on the fit data; also return those that failed, and why."""
    features = data.features if target is None or target.features is not None else None
    if list(names) == [ALL]:
        names = usable(features, head)
        if lost := sorted(set(usable(data.features, head)) - set(names)):
            log(f"Left out, because {options.apply} has no features: {', '.join(lost)}.")
    for name in names:
        registry.spec("calibrator", name, "--calibrator")
    return rank_calibrators(
        data.logits,
        data.label,
        features,
        head,
        candidates=names,
        rank_by=options.rank_by or NLL,
        folds=options.folds,
        seed=options.seed,
        n_bins=options.bins,
        n_resamples=options.bootstrap,
    )


def _ranking_content(ranking: Sequence[Ranked], refused: Mapping[str, str]) -> dict[str, Any]:
    """Return a ranking for JSON, the best first."""
    entries = [
        {
            "calibrator": entry.id,
            **_json_scores({"difference": entry.difference}),
            "tied_with_best": entry.tied,
            "moved": entry.changed,
            "seconds": entry.seconds,
            "metrics": _json_scores(entry.scores),
        }
        for entry in ranking
    ]
    return {"ranking": entries, "left_out": dict(refused)}


def _ranking_text(
    ranking: Sequence[Ranked], refused: Mapping[str, str], rows: int, folds: int, rank_by: str
) -> str:
    """Return the ranking as a table, the best first, with ties and calibrators left out."""
    tied = [entry.id for entry in ranking[1:] if entry.tied]
    width = max(len(entry.id) for entry in ranking) + 2
    columns = list(dict.fromkeys([*RANKING_SHOWN, rank_by]))
    lines = [
        f"Ranked by {rank_by} in {folds}-fold cross-validation on the {rows} rows of the fit data.",
        f"{'':5s}{'':{width}s}{f'{rank_by} - best [interval]':>34s}"
        + "".join(f"{name:>14s}" for name in columns)
        + f"{'moved':>9s}{'s a fit':>10s}",
    ]
    for place, entry in enumerate(ranking, start=1):
        value, low, high = entry.difference
        interval = "" if np.isnan(low) else f"[{low:+.5f}, {high:+.5f}]"
        shown = f"{value:+.5f} {interval:>23s}" if place > 1 else "best"
        scores = "".join(f"{entry.scores[name][0]:>14.5f}" for name in columns)
        lines.append(
            f"{place:>3d}  "
            f"{entry.id:{width}s}{shown:>34s}{scores}{100 * entry.changed:>8.2f}%{entry.seconds:>10.3f}"
        )
    best = ranking[0]
    low, high = best.scores["ece_debiased"][1:]
    if not np.isnan(low):
        value = best.scores["ece_debiased"][0]
        lines.append(f"Debiased ECE of {best.id}: {value:.5f}, interval [{low:.5f}, {high:.5f}].")
    if tied:
        lines.append(f"No significant difference from {best.id}: {', '.join(tied)}.")
    lines += [f"Left out: {id} ({reason})" for id, reason in refused.items()]
    return "\n".join(lines) + "\n\n"


def _assignment(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise ConfigError(f"--set {text}: write NAME=VALUE.")
    try:
        return name, yaml.safe_load(value)
    except yaml.YAMLError:
        raise ConfigError(
            f"--set {text}: the value is not valid YAML; write a number, a text or a list."
        ) from None


def metrics(options: argparse.Namespace) -> None:
    """Print all metrics of one file."""
    data = read(options.file, options.labels, options)
    probs = predicted(data)
    further = _own_metrics(probs, data.label, options)
    measure, resample = partial(evaluate, further=further), partial(bootstrap, further=further)
    scores = _scores(probs, data.label, options, measure, resample)
    if data.distribution is not None:
        scores |= _scores(probs, data.distribution, options, evaluate_soft, bootstrap_soft)
    if options.json:
        sys.stdout.write(json.dumps(_json_scores(scores), indent=2) + "\n")
        return
    sys.stdout.write(f"{len(data)} rows, {probs.shape[1]} classes\n")
    for name, (value, low, high) in scores.items():
        sys.stdout.write(
            f"{name:18s} {value:10.5f}  {_interval(low, high):22s} {find_metric(name).summary}\n"
        )


def _own_metrics(
    probs: np.ndarray, labels: np.ndarray, options: argparse.Namespace
) -> list[Metric]:
    """Metrics of plugins that can be computed for a file; others are reported and left out."""
    predictions, found, broken = check_probabilities(probs, labels), [], registry.broken("metric")
    for metric in own_metrics():
        try:
            metric.function(predictions, predictions.labels, options.bins)
            found.append(metric)
        except ConfigError as error:
            broken.append(str(error))
    for sentence in broken:
        log(f"calgrid metrics: {sentence}")
    return found


def _scores(
    probs: np.ndarray,
    truth: np.ndarray,
    options: argparse.Namespace,
    measure: Callable[..., Mapping[str, float]] = evaluate,
    resample: Callable[..., Mapping[str, tuple[float, float]]] = bootstrap,
) -> dict[str, tuple[float, float, float]]:
    """Value and interval of each metric; ``truth`` are labels, or the distributions of soft
    metrics.
    """
    values = measure(probs, truth, n_bins=options.bins)
    bounds = (
        resample(probs, truth, n_resamples=options.bootstrap, n_bins=options.bins)
        if options.bootstrap
        else {}
    )
    return {name: (value, *bounds.get(name, (np.nan, np.nan))) for name, value in values.items()}


def _json_scores(
    scores: Mapping[str, tuple[float, float, float]],
) -> dict[str, dict[str, float | None]]:
    """Value and interval of each metric; NaN, which JSON lacks, becomes null."""
    keys = ("value", "ci_low", "ci_high")
    return {
        name: {
            key: None if np.isnan(value) else float(value)
            for key, value in zip(keys, cell, strict=True)
        }
        for name, cell in scores.items()
    }


def _interval(low: float, high: float) -> str:
    return "" if np.isnan(low) else f"[{low:.5f}, {high:.5f}]"


def _print_comparison(scores: Mapping[str, Mapping[str, tuple[float, float, float]]]) -> None:
    names = list(scores)
    sys.stdout.write(f"{'':18s}" + "".join(f"{name:>34s}" for name in names) + "\n")
    for metric in SHOWN:
        cells = [scores[name][metric] for name in names]
        line = "".join(f"{value:>12.5f} {_interval(low, high):>21s}" for value, low, high in cells)
        sys.stdout.write(f"{metric:18s}{line}\n")
