"""``calgrid cost``: estimated cost of a configuration."""

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from calgrid.cli.study_of import read_study
from calgrid.configuration.cards import BATCH, CARDS, PASS_SECONDS_A_MULTIPLY_ADD, Card
from calgrid.configuration.costs import (
    CORE_SLOWER,
    FORWARD_SHARE,
    Place,
    RunCost,
    archive_bytes,
    card_speed,
    count_classes,
    count_jobs,
    measured_runs,
    prepared_bytes,
    run_costs,
    scored_images,
)
from calgrid.configuration.plan import Plan
from calgrid.configuration.rules import gpu_here
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.progress import Progress
from calgrid.storage.layout import RunKey

#: units and their size
TIME = {"h": 3600.0, "min": 60.0, "s": 1.0}
SIZE = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def cost(options: argparse.Namespace) -> None:
    """Print jobs, hours, downloads and disk of a configuration, by data set and by method, with the
    assumptions.
    """
    throughput = dict(map(_stated, options.throughput))
    study = read_study(options.study, options.data_root)
    card = CARDS.get(options.card)
    without_gpu = card is None and study.config.device == "auto" and not gpu_here()
    on_core = without_gpu or (card is None and study.config.device == "cpu")
    measured = dict[Place, float]()
    runs = run_costs(study, throughput, on_core=on_core, card=card)
    if options.measure:
        on_core, measured = _measured(study, throughput)
        runs = run_costs(study, throughput, measured, on_core)
    jobs = {job: count for job, count in count_jobs(study).items() if count}
    counts = ", ".join(f"{job} {count:,}" for job, count in jobs.items())
    processor = "core" if on_core else "GPU" if card is None else f"GPU, an {card.name}"
    if without_gpu:
        processor += " (there is no GPU here; for those of a cluster, write 'device: cuda')"
    lines = [
        f"study '{study.layout.study}', ignoring existing results; times of one {processor}",
        "",
        f"jobs: {sum(jobs.values()):,} ({counts})",
        "",
    ]
    if runs:
        lines += [
            *_table("protocol, data set, backbone", runs, _group),
            "",
            *_table("method", runs, lambda key: key.method),
            "",
            *_disk(study, runs),
            "",
            *_assumptions(study, throughput, measured, card),
        ]
    else:
        lines.append(
            "No network is trained or predicts: calibration and reports take seconds to minutes "
            "of a processor core a run."
        )
    sys.stdout.write("\n".join(lines) + "\n")


def _measured(study: Study, stated: Collection[str]) -> tuple[bool, dict[Place, float]]:
    """Whether this machine trains the study on a CPU, and its images per second and pass."""
    from calgrid.jobs.speed import images_per_second
    from calgrid.training.environment import choose_device

    plan, speeds, device = Plan(study), dict[Place, float](), study.config.device
    runs = measured_runs(study, stated)
    with Progress("measure", len(runs), "network") as progress:
        for place, (key, passes) in runs.items():
            shape = study.datasets.describe(key.dataset).info["image_shape"]
            classes = count_classes(study, key.dataset)
            speeds[place] = passes * images_per_second(plan.train(key).spec, shape, classes, device)
            progress.advance()
    return choose_device(device).type == "cpu", speeds


def _stated(text: str) -> tuple[str, float]:
    backbone, equals, number = text.rpartition("=")
    try:
        images = float(number)
    except ValueError:
        images = 0.0
    if not equals or not backbone or not 0 < images < math.inf:
        raise ConfigError(
            f"--throughput: '{text}' is not BACKBONE=IMAGES with a number of images per second, "
            "such as resnet50=2500."
        )
    return backbone, images


def _group(key: RunKey) -> str:
    return f"{key.protocol}/{key.dataset}/{key.backbone}"


def _table(title: str, runs: list[RunCost], name: Callable[[RunKey], str]) -> list[str]:
    groups: dict[str, list[RunCost]] = defaultdict(list)
    for run in runs:
        groups[name(run.key)].append(run)
    groups["total"] = runs
    width = max(map(len, [title, *groups]))
    rows = [f"{title:{width}s}{'runs':>12s}{'train':>12s}{'predict':>12s}{'disk':>12s}"]
    for label, group in groups.items():
        train = _in_unit(3600 * sum(run.train_hours for run in group), TIME)
        predict = _in_unit(3600 * sum(run.predict_hours for run in group), TIME)
        size = _in_unit(sum(run.bytes for run in group), SIZE)
        rows.append(f"{label:{width}s}{len(group):>12,}{train:>12s}{predict:>12s}{size:>12s}")
    return rows


def _in_unit(total: float, units: Mapping[str, float]) -> str:
    """A total in the largest unit in which it is at least 1, or in the smallest."""
    if not total:
        return "-"
    unit = next((name for name, size in units.items() if total >= size), list(units)[-1])
    return f"{total / units[unit]:,.1f} {unit}"


def _disk(study: Study, runs: list[RunCost]) -> list[str]:
    """Disk space, and files that are not in it or that the user must fetch."""
    downloads = archive_bytes(study, downloaded=True)
    prepared = sum(prepared_bytes(study, name) for name, _ in study.prepared())
    sizes = {
        "downloads": sum(filter(None, downloads.values())),
        "prepared images": prepared,
        "checkpoints, logits and features": sum(run.bytes for run in runs),
    }
    parts = ", ".join(f"{name} {_in_unit(size, SIZE)}" for name, size in sizes.items() if size)
    lines = [f"disk: {_in_unit(sum(sizes.values()), SIZE)} ({parts})"]
    unsized = [name for name, size in downloads.items() if size is None]
    if unsized:
        lines.append(f"downloads of unpublished size, not counted: {', '.join(unsized)}")
    files = []
    for name, size in archive_bytes(study, downloaded=False).items():
        files.append(name if size is None else f"{name} ({_in_unit(size, SIZE)})")
    if files:
        lines.append(f"files that you must put into data_root: {', '.join(files)}")
    return lines


def _assumptions(
    study: Study,
    throughput: Mapping[str, float],
    measured: Mapping[Place, float],
    card: Card | None,
) -> list[str]:
    lines = ["Assumptions:"]
    if throughput:
        stated = [f"{backbone} {images:g} images/s" for backbone, images in throughput.items()]
        lines.append(f"- Stated by you, for training on images of this study: {', '.join(stated)}.")
    if measured:
        speeds = [f"{'/'.join(place)} {images:,.1f} images/s" for place, images in measured.items()]
        lines.append(
            "- Measured here in up to twenty training steps on random images, on one core or the "
            f"GPU: {', '.join(speeds)}."
        )
    estimated, shared = set(), set()
    on_card: dict[str, set[float]] = defaultdict(set)
    for key, run in study.trained.items():
        if key.backbone not in throughput and key[:3] not in measured:
            speed = None if card is None else card_speed(study, run, card)
            if speed is None:
                estimated.add(f"{key.protocol}/{key.backbone}" if card else key.backbone)
            else:
                on_card[key.backbone].add(speed)
        if run.gpus > 1:
            shared.add((key.protocol, run.gpus))
    if card is not None and on_card:
        told = []
        for backbone, found in on_card.items():
            told.append(f"{backbone} {' or '.join(f'{each:,.0f}' for each in sorted(found))}")
        lines.append(
            f"- Measured on one {card.name} (docs/gpu.md), images/s of training: "
            f"{', '.join(told)}; where there are two, the lower is without a CUDA graph. These are "
            f"{card.share:.0%} of the speed of steps, in bf16 with batches of {BATCH} images of "
            "32x32 pixels: the share that resnet18 reached in a training with validation. "
            f"Predictions: at most {card.predicted:,.0f} images/s."
        )
    if estimated:
        lines.append(
            f"- Estimated, not measured {'there' if card else 'on your machine'}: "
            f"{', '.join(sorted(estimated))}. A forward "
            f"and backward pass over an image takes {PASS_SECONDS_A_MULTIPLY_ADD:g} s per "
            "multiply-add of the network on a GPU, the slow end of published training times on "
            f"CIFAR with one A40, and {CORE_SLOWER} times as long on a processor core. Give "
            f"{'' if card else '--measure or '}--throughput for better numbers."
        )
    for protocol, gpus in sorted(shared):
        lines.append(
            f"- A training of protocol '{protocol}' shares its hours among {gpus} processors; the "
            "exchange between them is not counted."
        )
    lines += [
        "- A training step counts as one pass over its images, or as those that its procedure "
        "states; the computation of a loss is not counted.",
        f"- Scored images, and the frozen body of a second stage, count as {FORWARD_SHARE:.2f} of "
        "a pass.",
        "- Preparation, calibration and reports run on processor cores and are not counted: "
        "seconds to minutes a run, six hours of a core with ImageNet-C and nine calibrators.",
        "- Starting a job takes seconds and is not counted.",
        "- Disk space is that of uncompressed numbers, without downloaded weights, tables, "
        "figures and resume states.",
    ]
    unknown = [name for name in study.image_sets() if not scored_images(study, name)]
    if unknown:
        lines.append(
            "- Not counted, because their number of images is unknown before preparation: "
            f"{', '.join(unknown)}."
        )
    return lines
