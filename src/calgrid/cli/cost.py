"""``calgrid cost``: estimated cost of a configuration."""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calgrid.cli.listing import read_study
from calgrid.configuration.costs import ENCODED_SHARE, RunCost, StudyCost, study_cost
from calgrid.configuration.resources import (
    FORWARD_SHARE,
    PASS_SECONDS,
    PASS_SECONDS_A_MULTIPLY_ADD,
    UNKNOWN_IMAGES,
)
from calgrid.errors import ConfigError

#: units and their size
TIME = {"h": 3600.0, "min": 60.0, "s": 1.0}
SIZE = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def cost(options: argparse.Namespace) -> None:
    """Print jobs, hours, downloads and disk of a configuration, by data set and by method, with the
    assumptions.
    """
    throughput = dict(_measured(text) for text in options.throughput)
    study = read_study(options.configuration)
    found = study_cost(study, throughput)
    lines = [f"study '{study.layout.study}', ignoring existing results", "", *_jobs(found)]
    lines += ["", *_table("protocol, data set, backbone", found.runs, _place)]
    lines += ["", *_table("method", found.runs, lambda key: key.method)]
    lines += [
        "",
        *_cores(found),
        *_disk(found),
        *_brought(found),
        "",
        *_assumptions(found, throughput),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


def _measured(text: str) -> tuple[str, float]:
    backbone, equals, number = text.rpartition("=")
    try:
        images = float(number)
    except ValueError:
        images = 0.0
    if not equals or not backbone or not 0 < images < math.inf:
        raise ConfigError(
            f"--throughput: '{text}' is not BACKBONE=IMAGES with a number of images per second, "
            f"such as resnet50=2500."
        )
    return backbone, images


def _place(key: Any) -> str:
    return f"{key.protocol}/{key.dataset}/{key.backbone}"


def _jobs(found: StudyCost) -> list[str]:
    jobs = {stage: count for stage, count in found.jobs.items() if count}
    each = ", ".join(f"{stage} {count:,}" for stage, count in jobs.items())
    return [f"jobs: {sum(jobs.values()):,} ({each})"]


def _table(title: str, runs: Iterable[RunCost], name: Callable[[Any], str]) -> list[str]:
    groups: dict[str, list[RunCost]] = defaultdict(list)
    for run in runs:
        groups[name(run.key)].append(run)
    everything = [run for group in groups.values() for run in group]
    width = max(map(len, [title, "total", *groups]))
    rows = [
        f"{title:{width}s}"
        + "".join(f"{heading:>12s}" for heading in ("runs", "train", "predict", "disk"))
    ]
    for label, group in [*groups.items(), ("total", everything)]:
        hours = sum(run.train_hours for run in group), sum(run.predict_hours for run in group)
        cells = [*(_timed(3600 * each) for each in hours), _sized(sum(run.bytes for run in group))]
        rows.append(
            f"{label:{width}s}{len(group):>12,}" + "".join(f"{cell:>12s}" for cell in cells)
        )
    return rows


def _in_unit(total: float, units: Mapping[str, float]) -> str:
    """A total in the largest unit in which it is at least 1, or in the smallest."""
    unit = next((name for name, size in units.items() if total >= size), list(units)[-1])
    return f"{total / units[unit]:,.1f} {unit}"


def _sized(size: float) -> str:
    return _in_unit(size, SIZE)


def _timed(seconds: float) -> str:
    return _in_unit(seconds, TIME)


def _cores(found: StudyCost) -> list[str]:
    """CPU core time, each number in its own unit."""
    parts = {name: 3600 * hours for name, hours in found.core_hours.items()}
    each = ", ".join(f"{name} {_timed(seconds)}" for name, seconds in parts.items())
    return [f"processor cores: {_timed(sum(parts.values()))} of one core ({each})"]


def _brought(found: StudyCost) -> list[str]:
    """Files that the user must fetch, and downloads of unknown size."""
    files = [name + (f" ({_sized(size)})" if size else "") for name, size in found.brought.items()]
    unsized = [name for name, size in found.downloads.items() if size is None]
    lines = [f"downloads of unpublished size, not counted: {', '.join(unsized)}"] if unsized else []
    return [
        *lines,
        *([f"files that you must put into data_root: {', '.join(files)}"] if files else []),
    ]


def _disk(found: StudyCost) -> list[str]:
    parts = {
        "downloads": sum(filter(None, found.downloads.values())),
        "prepared images": sum(found.prepared.values()),
        "checkpoints, logits and features": sum(run.bytes for run in found.runs),
    }
    each = ", ".join(f"{name} {_sized(size)}" for name, size in parts.items() if size)
    return [f"disk: {_sized(sum(parts.values()))} ({each})"]


def _assumptions(found: StudyCost, throughput: Mapping[str, float]) -> list[str]:
    estimated = sorted({run.key.backbone for run in found.runs} - set(throughput))
    lines = ["Assumptions:"]
    if throughput:
        stated = ", ".join(
            f"{backbone} {images:g} images/s" for backbone, images in throughput.items()
        )
        lines.append(f"- Stated by you, for training on images of this study: {stated}.")
    if estimated:
        lines.append(
            f"- Estimated, not measured on your GPU: {', '.join(estimated)}. A forward and "
            f"backward pass over an image "
            f"takes {PASS_SECONDS_A_MULTIPLY_ADD:g} s per multiply-add of the network, the slow "
            f"end of published "
            f"training times on CIFAR with one A40, and at least {PASS_SECONDS:g} s at 32x32 "
            f"pixels. Precision is "
            "ignored. Give --throughput for better numbers."
        )
    lines += [
        "- Every training step counts as one pass over its images, whatever the method; some take "
        "longer.",
        f"- Scored images, and the frozen body of a second stage, count as {FORWARD_SHARE:.2f} of "
        f"a pass.",
        "- Preparation and calibration run on CPU cores, in parallel; aggregation, tables, figures "
        "and report take "
        "minutes and are not counted.",
        "- Disk space is that of uncompressed numbers, without tables, figures and resume states. "
        "Images of large "
        f"splits stay encoded: they count as their files, corruptions as {ENCODED_SHARE:g} of "
        f"their pixels.",
    ]
    if found.unknown:
        lines.append(
            f"- Assumed to have {UNKNOWN_IMAGES:,} training and {UNKNOWN_IMAGES:,} test images, "
            f"because their size is "
            f"unknown before preparation: {', '.join(found.unknown)}."
        )
    return lines
