"""``calgrid metrics``, and shared parts of all commands for logits files."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from pathlib import Path

import numpy as np

from calgrid.cli.terminal import Arguments, write, write_json
from calgrid.components import registry
from calgrid.components.metrics import find_metric, metric_names
from calgrid.errors import ConfigError
from calgrid.logits.reading import predicted, read_any
from calgrid.logits.symptoms import symptoms
from calgrid.metrics import (
    METRICS,
    Metric,
    Output,
    Predictions,
    aece_left_out,
    bootstrap,
    bootstrap_soft,
    check_probabilities,
    evaluate,
    evaluate_soft,
)
from calgrid.metrics.intervals import Estimate
from calgrid.progress import WARNINGS, warn
from calgrid.storage.logits import Logits

#: value of --calibrator for all calibrators with given inputs
ALL = "all"


def read(
    path: Path,
    labels: Path | None,
    options: Arguments,
    classes: Sequence[str] | None = None,
    labelled: bool = True,
) -> Logits:
    """Read a file with the options of the command line; ``--classes`` has precedence.

    ``classes`` are those of another file or of a calibrator: columns of further classes are
    refused.
    """
    return read_any(
        path,
        options.kind,
        labels,
        values_key=options.values_key,
        label_key=options.label_key,
        classes=options.classes or classes,
        binary=options.binary,
        labelled=labelled,
        exact=not options.classes,
    )


def calibrator_names(text: str) -> list[str]:
    """Identifiers in ``ID,ID,...``, each once; full names are replaced.

    Raises
    ------
    ConfigError : a calibrator needs features of training images, which files do not have.
    """
    names = filter(None, map(str.strip, text.split(",")))
    ids = list(dict.fromkeys(map(registry.calibrator_id, names)))
    known = registry.descriptions("calibrator")
    for id in ids:
        if id in known and "training features" in known[id].info["needs"]:
            raise ConfigError(
                f"'{id}' needs features of training images, which files do not have; use it in a "
                "study whose protocol has export_features: train, or name another calibrator."
            )
    return ids


def left_out_lines(reasons: Mapping[str, str]) -> list[str]:
    """One line for each reason, with the calibrators left out for this reason."""
    ids: dict[str, list[str]] = defaultdict(list)
    for id, reason in reasons.items():
        ids[reason.removesuffix(".")].append(id)
    return [f"Left out: {', '.join(each)} ({reason})." for reason, each in ids.items()]


def rows_of(data: Sized) -> str:
    """``1 row``, ``20 rows``."""
    return f"{len(data)} row{'s' * (len(data) != 1)}"


def says_and_right(output: Output, labels: np.ndarray) -> str:
    """Mean confidence beside accuracy, in percent: ``says 94.2 %, right 86.5 %``."""
    right = output.probs.argmax(axis=1) == labels
    return f"says {100 * output.probs.max(axis=1).mean():.1f} %, right {100 * right.mean():.1f} %"


def estimates(
    probabilities: Output | Predictions,
    truth: np.ndarray,
    options: Arguments,
    measure: Callable[..., Mapping[str, float]] = evaluate,
    resample: Callable[..., Mapping[str, tuple[float, float]]] = bootstrap,
) -> dict[str, Estimate]:
    """Metrics with intervals; ``truth`` are labels, or the distributions of soft metrics."""
    values = measure(probabilities, truth, n_bins=options.bins)
    bounds: Mapping[str, tuple[float, float]] = {}
    if options.bootstrap:
        bounds = resample(probabilities, truth, n_resamples=options.bootstrap, n_bins=options.bins)
    return {name: Estimate(value, *bounds.get(name, ())) for name, value in values.items()}


def as_json(scores: Mapping[str, Estimate]) -> dict[str, dict[str, float | None]]:
    """Value and interval of each metric; NaN, which JSON lacks, becomes null."""
    written: dict[str, dict[str, float | None]] = {}
    for name, score in scores.items():
        values = [None if np.isnan(value) else float(value) for value in score]
        written[name] = dict(zip(("value", "ci_low", "ci_high"), values, strict=True))
    return written


def interval_text(score: Estimate, sign: str = "") -> str:
    """The interval in brackets, empty without one; ``sign`` ``+`` writes all signs."""
    low, high = (f"{end:{sign}.5f}" for end in (score.low, score.high))
    return "" if np.isnan(score.low) else f"[{low}, {high}]"


def uncertain_text(scores: Mapping[str, Estimate]) -> str:
    """Lines naming the metrics without an interval for lack of errors or samples of a class."""
    lacking: dict[str, list[str]] = {}
    for name, score in scores.items():
        needs = find_metric(name).needs
        if any(needs) and np.isnan(score.low) and not np.isnan(score.value):
            lacking.setdefault(str(needs), []).append(name)
    lines = [
        f"No interval of {', '.join(names)}: it needs at least {needs}.\n"
        for needs, names in lacking.items()
    ]
    return "".join(lines)


def metrics(options: Arguments) -> None:
    """Print all metrics of one file."""
    data = read(options.file, options.labels, options)
    probabilities = predicted(data)
    warn(*symptoms(data, probabilities, options.file))
    predictions = check_probabilities(probabilities, data.label)
    further = _metrics_of_plugins(predictions, options.bins)
    measure, resample = partial(evaluate, further=further), partial(bootstrap, further=further)
    scores = estimates(predictions, data.label, options, measure, resample)
    if data.distribution is not None:
        scores |= estimates(
            probabilities, data.distribution, options, evaluate_soft, bootstrap_soft
        )
    if options.json:
        write_json({**as_json(scores), "warnings": WARNINGS})
        return
    said = says_and_right(probabilities, data.label)
    write(f"{rows_of(data)}, {probabilities.shape[1]} classes: {said}\n")
    for name, score in scores.items():
        summary = find_metric(name).summary
        if name == "aece":
            summary += f" ({aece_left_out(predictions, data.label):,} here)"
        write(f"{name:18s} {score.value:10.5f}  {interval_text(score):22s} {summary}\n")
    if options.bootstrap:
        write(uncertain_text(scores))


def _metrics_of_plugins(predictions: Predictions, bins: int) -> list[Metric]:
    """Metrics of plugins that can be computed for a file; others are reported and left out."""
    warn(*registry.broken("metric"))
    working = []
    for name in metric_names():
        if name in METRICS:
            continue
        try:
            metric = find_metric(name)
            metric.function(predictions, predictions.labels, bins)
            working.append(metric)
        except ConfigError as error:
            warn(str(error))
    return working
