"""``calgrid cost``: what a configuration takes, before anything has run."""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from calgrid.cli.listing import read_study
from calgrid.configuration.costs import RunCost, StudyCost, study_cost
from calgrid.configuration.resources import (
    FORWARD_SHARE,
    PASS_SECONDS,
    PASS_SECONDS_A_MULTIPLY_ADD,
    UNKNOWN_IMAGES,
)
from calgrid.errors import ConfigError

HEADINGS = ("runs", "train h", "predict h", "disk GB")
GB = 1e9


def cost(options: argparse.Namespace) -> None:
    """Print jobs, GPU hours and disk of a configuration, by place and by method, with what they rest on."""
    throughput = dict(_measured(text) for text in options.throughput)
    study = read_study(options.configuration, options.home)
    found = study_cost(study, throughput)
    lines = [f"study '{study.layout.study}', as if nothing of it were there yet", "", *_jobs(found)]
    lines += ["", *_table("protocol, data set, backbone", found.runs, _place)]
    lines += ["", *_table("method", found.runs, lambda key: key.method)]
    lines += ["", *_disk(found), "", *_assumptions(found, throughput)]
    sys.stdout.write("\n".join(lines) + "\n")


def _measured(text: str) -> tuple[str, float]:
    backbone, equals, number = text.rpartition("=")
    try:
        images = float(number)
    except ValueError:
        images = 0.0
    if not equals or not backbone or not 0 < images < math.inf:
        raise ConfigError(
            f"--throughput: '{text}' is not BACKBONE=IMAGES with a number of images a second above 0, as resnet50=2500."
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
    rows = [f"{title:{width}s}" + "".join(f"{heading:>12s}" for heading in HEADINGS)]
    rows += [_row(label, group, width) for label, group in [*groups.items(), ("total", everything)]]
    return rows


def _row(label: str, runs: list[RunCost], width: int) -> str:
    train, predict = sum(run.train_hours for run in runs), sum(run.predict_hours for run in runs)
    disk = sum(run.bytes for run in runs) / GB
    return f"{label:{width}s}{len(runs):>12,}{train:>12,.1f}{predict:>12,.1f}{disk:>12,.1f}"


def _disk(found: StudyCost) -> list[str]:
    parts = {
        "downloads": sum(found.downloads.values()),
        "prepared images": sum(found.prepared.values()),
        "checkpoints, logits and features": sum(run.bytes for run in found.runs),
    }
    each = ", ".join(f"{name} {size / GB:,.1f} GB" for name, size in parts.items())
    return [f"disk: {sum(parts.values()) / GB:,.1f} GB ({each})"]


def _assumptions(found: StudyCost, throughput: Mapping[str, float]) -> list[str]:
    estimated = sorted({run.key.backbone for run in found.runs} - set(throughput))
    lines = ["What this rests on:"]
    if throughput:
        stated = ", ".join(f"{backbone} {images:g} images/s" for backbone, images in throughput.items())
        lines.append(f"- Stated by you, for training on images of this study: {stated}.")
    if estimated:
        lines.append(
            f"- Estimated, not measured on your GPU: {', '.join(estimated)}. A forward and backward pass over an image "
            f"takes {PASS_SECONDS_A_MULTIPLY_ADD:g} s a multiply-add of the network, the slow end of what "
            f"published training times on CIFAR with one A40 come to, and at least {PASS_SECONDS:g} s at 32x32 pixels. "
            "Precision is not taken into account. Give --throughput for better numbers."
        )
    lines += [
        "- Every training step counts as one pass over its images, whatever the method; some take longer.",
        f"- Images that are scored, and the frozen body under a second stage, count {FORWARD_SHARE:.2f} of a pass.",
        "- Calibration and reports run on processor cores and are not in the hours.",
        "- Disk is that of uncompressed numbers; tables, figures and resume states are not in it.",
    ]
    if found.unknown:
        lines.append(
            f"- Counted as {UNKNOWN_IMAGES:,} training and test images each, because their size is not known before "
            f"they are prepared: {', '.join(found.unknown)}."
        )
    return lines
