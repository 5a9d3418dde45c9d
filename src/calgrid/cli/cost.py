"""``calgrid cost``: jobs and images of a configuration, and hours at measured speeds."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from calgrid.cli.study_of import read_study
from calgrid.cli.terminal import Arguments, write
from calgrid.errors import CalgridError, ConfigError, unknown_id
from calgrid.plan import costs
from calgrid.plan.plan import Plan
from calgrid.progress import Progress
from calgrid.storage.records import TRAIN, RunKey, read_record
from calgrid.study.study import Study

#: columns of the table
NAME_WIDTH, WIDTHS = 21, (9, 16, 16, 9, 9)
#: units and their size
TIME = {"h": 3600.0, "min": 60.0, "s": 1.0}
SIZE = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
#: protocol, data set and backbone -> training passes over an image per second
Speeds = dict[tuple[str, ...], float]


def cost(options: Arguments) -> None:
    """Print jobs, images, downloads and, where a speed is known, hours of a configuration."""
    stated: dict[str, float] = {}
    for text in options.throughput:
        backbone, _, number = text.rpartition("=")
        try:
            images = float(number)
        except ValueError:
            images = 0.0
        if not backbone or not 0 < images < math.inf:
            raise ConfigError(
                f"--throughput: '{text}' is not BACKBONE=IMAGES with a number of images per "
                "second, such as resnet50=2500."
            )
        stated[backbone] = images
    study = read_study(options.study, options.data_root)
    plan = Plan(study)
    places = dict.fromkeys(key[:3] for key in study.trained)
    backbones = {backbone for *_, backbone in places}
    for backbone in stated:
        if backbone not in backbones:
            raise unknown_id("backbone", backbone, backbones, "--throughput")
    speeds = _measured(plan) if options.measure else _of_finished(plan)
    speeds |= {place: stated[place[2]] for place in places if place[2] in stated}
    lines = [
        f"study '{study.folder.name}': {plan.counts()}, those with results included",
        "",
        *_table(study, places, speeds),
        *_disk(study),
    ]
    write("\n".join(lines) + "\n")


def _measured(plan: Plan) -> Speeds:
    """Speeds of this machine."""
    from calgrid.jobs.speed import images_per_second

    study, speeds = plan.study, Speeds()
    runs = costs.measured_runs(study)
    with Progress("measure", len(runs), "network") as progress:
        for place, (key, passes) in runs.items():
            shape = study.datasets.describe(key.dataset).info["image_shape"]
            classes, device = costs.count_classes(study, key.dataset), study.config.device
            speeds[place] = passes * images_per_second(plan.train(key).spec, shape, classes, device)
            progress.advance()
    return speeds


def _of_finished(plan: Plan) -> Speeds:
    """Mean speeds of the study's finished trainings."""
    passes: dict[tuple[str, ...], float] = defaultdict(float)
    seconds: dict[tuple[str, ...], float] = defaultdict(float)
    for key in dict.fromkeys(plan.study.training.values()):
        record = Path(plan.train(key).folder, TRAIN)
        if record.is_file():
            try:
                seconds[key[:3]] += read_record(record, "record")["seconds"]
            except CalgridError:  # a damaged record; verify names it
                continue
            passes[key[:3]] += costs.training_passes(plan.study, plan.study.trained[key])
    return {place: passes[place] / taken for place, taken in seconds.items() if passes[place]}


def _table(study: Study, places: Iterable[tuple[str, ...]], speeds: Speeds) -> list[str]:
    """Networks, images and time of each place, with a legend and the unknown parts."""
    runs: dict[tuple[str, ...], list[RunKey]] = {place: [] for place in places}
    if not runs:
        return ["No network is trained or predicts."]
    for key in study.trained:
        runs[key[:3]].append(key)
    lines = _row("", ["networks", "trained", "predicted", "a second", "time"])
    total = [0.0, 0.0, 0.0]
    for place, keys in runs.items():
        work = [costs.work(study, key) for key in keys]
        trained = sum(each.trained for each in work)
        predicted = sum(each.predicted for each in work)
        networks = sum(study.training[key] == key for key in keys)
        speed = speeds.get(place)
        seconds = (trained + predicted) / speed if speed else math.nan
        shown = ["-", "-"] if speed is None else [f"{speed:,.1f}", _in_unit(seconds, TIME)]
        cells = [f"{networks:,}", f"{trained:,.0f}", f"{predicted:,.0f}", *shown]
        lines += _row("/".join(place), cells)
        total = [a + b for a, b in zip(total, (trained, predicted, seconds), strict=True)]
    trained, predicted, seconds = total
    time = "-" if math.isnan(seconds) else _in_unit(seconds, TIME)
    lines += [
        *_row("total", ["", f"{trained:,.0f}", f"{predicted:,.0f}", "", time]),
        "",
        "Images are training passes: a predicted one counts as a third, and one of a procedure "
        "with several passes as so many. Preparation and calibration are not counted.",
    ]
    if len(speeds) < len(runs):
        lines.append(
            "Unknown speeds (-): --measure times twenty training steps here, --throughput takes "
            "yours, and finished trainings of the study are used without either."
        )
    unknown = [name for name in study.image_sets() if not costs.shifted_images(study, name)]
    if unknown:
        lines.append(
            "Not counted, because their number of images is unknown before preparation: "
            f"{', '.join(unknown)}."
        )
    return [*lines, ""]


def _row(name: str, cells: Iterable[str]) -> list[str]:
    """A row of a table of at most 80 columns, with a line of its own for a long name."""
    short = name if len(name) <= NAME_WIDTH else ""
    row = f"{short:{NAME_WIDTH}s}" + "".join(
        f"{cell:>{width}s}" for cell, width in zip(cells, WIDTHS, strict=True)
    )
    return [row] if short == name else [name, row]


def _in_unit(total: float, units: Mapping[str, float]) -> str:
    """A total in the largest unit in which its number is at least 1, or in the smallest."""
    if not total:
        return "-"
    unit = next((name for name, size in units.items() if total >= size), list(units)[-1])
    return f"{total / units[unit]:,.1f} {unit}"


def _disk(study: Study) -> list[str]:
    """Files of data sets, and space of prepared images."""
    prepared = sum(costs.prepared_bytes(study, name) for name, _ in study.prepared())
    lines = []
    if prepared:
        lines.append(f"prepared images: at most {_in_unit(prepared, SIZE)}")
    for what, downloaded in (
        ("downloads", True),
        ("files that you must put into data_root", False),
    ):
        sized = costs.files(study, downloaded).items()
        names = [
            name if size is None else f"{name} ({_in_unit(size, SIZE)})" for name, size in sized
        ]
        if names:
            lines.append(f"{what}: {', '.join(names)}")
    return lines
