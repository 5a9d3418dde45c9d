"""``calgrid compare``: compares methods by their logits files for the same test samples."""

import argparse
import json
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from calgrid.cli.colours import coloured
from calgrid.cli.files import read
from calgrid.components.metrics import find_metric
from calgrid.errors import ConfigError, DataError
from calgrid.files.logits import predicted, row_keys
from calgrid.statistics import paired_bootstrap
from calgrid.statistics.sampling import NO_VERDICT
from calgrid.storage.logits import Logits

#: with fewer resamples the intervals are mostly noise
LEAST_RESAMPLES = 10
#: reason why a metric has no verdict, and the metric to compare instead
WHY_NONE = {
    "mce": "no verdict, because no interval with valid coverage is known; compare ece_debiased."
}


def compare(options: argparse.Namespace) -> None:
    """Print the paired difference of every two methods; see
    :func:`calgrid.statistics.paired_bootstrap`.
    """
    methods = [_parse(text) for text in options.method]
    names = [name for name, _ in methods]
    if len(names) < 2 or len(set(names)) < len(names):
        raise ConfigError(
            "Give at least two methods with different names, each as NAME=FILE[,FILE...]."
        )
    if options.bootstrap < LEAST_RESAMPLES:
        raise ConfigError(
            f"--bootstrap {options.bootstrap}: a comparison needs at least {LEAST_RESAMPLES} "
            f"resamples; 1000 are recommended."
        )
    first = _read(methods[0][1][0], options)
    runs = {}
    for name, paths in methods:
        runs[name] = [_probabilities(path, first, options) for path in paths]
    frame = paired_bootstrap(
        runs,
        first.label,
        metrics=list(dict.fromkeys(options.metrics)),
        n_resamples=options.bootstrap,
        n_bins=options.bins,
    )
    if options.json:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")  # JSON has no NaN
        sys.stdout.write(json.dumps(rows, indent=2) + "\n")
    else:
        sys.stdout.write(_text(frame, len(first)))


def _parse(text: str) -> tuple[str, list[Path]]:
    name, equals, files = text.partition("=")
    paths = [Path(file) for file in files.split(",") if file]
    if not (name and equals and paths):
        raise ConfigError(f"{text}: write NAME=FILE, or NAME=FILE,FILE with one file per seed.")
    return name, paths


def _read(path: Path, options: argparse.Namespace) -> Logits:
    """Rows sorted by index."""
    data = read(path, options.labels, options)
    return data.rows(np.lexsort(row_keys(data)))


def _probabilities(path: Path, first: Logits, options: argparse.Namespace) -> NDArray[np.float64]:
    data = _read(path, options)
    keys, first_keys = row_keys(data), row_keys(first)
    same_shape = data.logits.shape == first.logits.shape and len(keys) == len(first_keys)
    if not same_shape or not all(map(np.array_equal, keys, first_keys)):
        raise DataError(
            f"{path} has other samples than the first file (index or number of classes differ): "
            f"compare files for the same test set."
        )
    if not np.array_equal(data.label, first.label):
        raise DataError(
            f"{path} has other labels than the first file for the same samples: compare files for "
            f"the same test set."
        )
    return predicted(data)


def _text(frame: pd.DataFrame, n_samples: int) -> str:
    lines = [
        f"Paired on {n_samples} test samples; sd test: over resamples of them, sd seed: over seeds."
    ]
    for (method, against), rows in frame.groupby(["method", "against"], sort=False):
        seeds = rows["n_seeds"].iloc[0]
        scope = "these runs only, over test samples but not seeds"
        if seeds > 1:
            scope = "over test samples and seeds"
        lines.append(f"\n{method} - {against}  (seeds: {seeds}; interval and verdict: {scope})")
        lines.append(
            f"{'':16s}{'difference':>12s}  {'95 % interval':24s}{'sd test':>10s}{'sd seed':>10s}  "
            f"verdict"
        )
        lines += [_line(row) for row in rows.itertuples()]
    without_verdict = dict.fromkeys(frame.loc[frame["verdict"] == NO_VERDICT, "metric"])
    lines += [f"\n{name}: {_reason(name)}" for name in without_verdict]
    return "\n".join(lines) + "\n"


def _reason(metric: str) -> str:
    """Why a metric has no verdict."""
    if metric in WHY_NONE:
        return WHY_NONE[metric]
    if find_metric(metric).interval == "none":
        return "no verdict, because it has no interval."
    return "it is not defined for these data."


def _line(row: Any) -> str:
    interval = "" if math.isnan(row.ci_low) else f"[{row.ci_low:+.5f}, {row.ci_high:+.5f}]"
    seeds = "" if math.isnan(row.std_seed) else f"{row.std_seed:.5f}"
    return (
        f"{row.metric:16s}{row.difference:>+12.5f}  {interval:24s}{row.std_test:>10.5f}"
        f"{seeds:>10s}  {_verdict(row)}"
    )


def _verdict(row: Any) -> str:
    """``lower`` or ``higher`` in green where the first method is better, in red where it is worse."""
    if row.verdict not in ("lower", "higher"):
        return row.verdict
    better = "lower" if find_metric(row.metric).lower_is_better else "higher"
    return coloured(row.verdict, "green" if row.verdict == better else "red", sys.stdout)
