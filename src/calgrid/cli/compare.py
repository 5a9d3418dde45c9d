"""``calgrid compare``: compares methods by their logits files for the same test samples."""

import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from calgrid.class_names import say_unnamed
from calgrid.cli.files import read
from calgrid.cli.terminal import Arguments, coloured, write, write_json
from calgrid.components.metrics import find_metric
from calgrid.errors import ConfigError, DataError, refuse
from calgrid.logits.reading import predicted, row_keys
from calgrid.logits.symptoms import of_labels, of_scores
from calgrid.metrics import Output
from calgrid.progress import WARNINGS, warn
from calgrid.report.text import (
    UNITS,
    count,
    format_metric,
    format_with_unit,
    interval,
    is_square,
    p_value,
    size,
    untested,
)
from calgrid.statistics import paired_bootstrap
from calgrid.statistics.verdicts import BETTER, EQUIVALENT, FEWEST_TEST, FOUND, NO_VERDICT, TIE
from calgrid.storage.logits import Logits

#: with fewer resamples the intervals are mostly noise
LEAST_RESAMPLES = 10


def compare(options: Arguments) -> None:
    """Print the paired difference of every two methods; see
    :func:`calgrid.statistics.paired_bootstrap`.
    """
    methods = dict(map(_parse, options.method))
    refuse(
        (
            not 2 <= len(methods) == len(options.method),
            "Give at least two methods with different names, each as NAME=FILE[,FILE...].",
        ),
        (
            options.bootstrap < LEAST_RESAMPLES,
            f"--bootstrap {options.bootstrap}: a comparison needs at least {LEAST_RESAMPLES} "
            f"resamples; 1000 are recommended.",
        ),
    )
    first_path = next(iter(methods.values()))[0]
    first = _read(first_path, options)
    warn(*of_labels(first, first_path))
    runs = {}
    for name, paths in methods.items():
        runs[name] = [_output(path, first, options) for path in paths]
    frame = paired_bootstrap(
        runs,
        first.label,
        metrics=list(dict.fromkeys(options.metrics)),
        n_resamples=options.bootstrap,
        n_bins=options.bins,
        of_runs=options.networks,
    )
    if options.json:
        rows = frame.astype(object).where(frame.notna(), None).to_dict("records")  # JSON has no NaN
        write_json({"differences": rows, "warnings": WARNINGS})
    else:
        write(_text(frame, len(first), options.networks))


def _parse(text: str) -> tuple[str, list[Path]]:
    name, equals, files = text.partition("=")
    paths = list(map(Path, filter(None, files.split(","))))
    if not (name and equals and paths):
        raise ConfigError(f"{text}: write NAME=FILE, or NAME=FILE,FILE with one file per seed.")
    return name, paths


def _read(path: Path, options: Arguments, classes: Sequence[str] | None = None) -> Logits:
    """Rows sorted by index, columns in the order of the classes."""
    data = read(path, options.labels, options, classes)
    ordered = data.rows(np.lexsort(row_keys(data)))
    ordered.metadata = data.metadata
    return ordered


def _output(path: Path, first: Logits, options: Arguments) -> Output:
    """Probabilities of a file, for the rows of the first one."""
    classes = first.metadata.get("classes")
    data = _read(path, options, classes)
    if not classes and "classes" in data.metadata:
        say_unnamed("columns", "the first file", path, data.metadata["classes"])
    width, first_width = data.logits.shape[1], first.logits.shape[1]
    keys, first_keys = row_keys(data), row_keys(first)
    mend = "compare files for the same test set"
    refuse(
        (
            width != first_width,
            f"{path} has {width} classes, but the first file has {first_width}; {mend}.",
        ),
        (
            len(keys) != len(first_keys) or not all(map(np.array_equal, keys, first_keys)),
            f"{path} has other samples than the first file (index or number of rows differ); "
            f"{mend}.",
        ),
        (
            not np.array_equal(data.label, first.label),
            f"{path} has other labels than the first file for the same samples; {mend}.",
        ),
        error=DataError,
    )
    output = predicted(data)
    warn(*of_scores(data, output, path))
    return output


def _text(frame: pd.DataFrame, n_samples: int, networks: bool) -> str:
    lines = [f"Paired on {count(n_samples, 'test sample')}."]
    for (method, against), rows in frame.groupby(["method", "against"], sort=False):
        seeds = rows["n_seeds"].iloc[0]
        scope = "over test samples and seeds"
        if seeds == 1:
            scope = "these networks only, over test samples but not seeds"
        lines.append(f"\n{method} - {against} (seeds: {seeds}; interval and verdict: {scope})")
        lines.append(f"{'':24s}{'difference':>10s}  {'95 % interval':21s}{'Holm p':>9s}  verdict")
        lines += map(_line, rows.itertuples())
        lines += _limits(list(rows.itertuples()))
    if frame["metric"].map(is_square).any():
        lines.append("\nSquared errors are shown as their root, with the sign of the difference.")
    by = frame[(frame["decided_by"] != frame["metric"]) & (frame["decided_by"] != "")]
    for row in by.drop_duplicates("metric").itertuples():
        lines.append(f"\n{row.metric}: the verdict is that of {row.decided_by}, which has no bias.")
    one_run = (frame["n_seeds"] == 1) & (frame["decided_by"] != "") & (not networks)
    if one_run.any():
        lines.append(
            "\nno verdict: one run of a method says nothing about another run of it; give files of "
            "several seeds, or --networks to ask about these networks alone."
        )
    without_verdict = frame[(frame["verdict"] == NO_VERDICT) & ~one_run]
    if n_samples < FEWEST_TEST:
        lines.append(f"\nno verdict: a test needs at least {FEWEST_TEST} samples.")
        without_verdict = without_verdict.iloc[:0]
    for row in without_verdict.drop_duplicates("metric").itertuples():
        lines.append(f"\n{row.metric}: no verdict; {_reason(row)}")
    return "\n".join(lines) + "\n"


def _reason(row: Any) -> str:
    """Why a difference has no verdict."""
    if row.decided_by == "":
        return "it has no test."
    if math.isnan(row.difference):
        return "it is not defined for these data."
    lacking = untested(row.metric, row.std_test)
    return f"{lacking or 'its difference does not vary over these data'}."


def _line(row: Any) -> str:
    unit = UNITS.get(find_metric(row.metric).unit)
    label = f"{row.metric} ({unit})" if unit else row.metric
    difference = format_metric(row.metric, row.difference, signed=True)
    ends = interval(row.metric, row.ci_low, row.ci_high, signed=True)
    p = "" if math.isnan(row.p_holm) else p_value(row.p_holm)
    colour = None
    if row.verdict in FOUND:
        colour = "green" if row.verdict == BETTER else "red"
    verdict = coloured(row.verdict, colour, sys.stdout)
    return f"{label:24s}{difference:>10s}  {ends:21s}{p:>9s}  {verdict}"


def _limits(rows: Sequence[Any]) -> list[str]:
    """Detectable differences of ties, and margins of equivalence."""
    ties, margins = [], []
    for row in rows:
        if row.verdict == TIE and not math.isnan(row.detectable):
            ties.append(f"{size(row.metric, row.detectable)} of {row.metric}")
        if row.verdict == EQUIVALENT:
            margin = format_with_unit(row.decided_by, find_metric(row.decided_by).margin)
            margins.append(f"{margin} of {row.decided_by}")
    lines = [f"{TIE}: {', '.join(ties)} would have been found"] if ties else []
    if margins:
        lines.append(f"{EQUIVALENT}: within {', '.join(dict.fromkeys(margins))}")
    return lines
