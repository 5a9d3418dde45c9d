"""Estimated costs of a study: jobs, hours of training and prediction, downloads and disk.

Hours are images times epochs, with those that a procedure adds, times the seconds of a forward and
backward pass, and times the passes that a procedure declares. A forward pass alone (scoring, the
frozen layers of a second stage) counts as a third. Disk is the size of uncompressed arrays.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from calgrid.backbones.catalogue import measured, measured_timm
from calgrid.components import registry
from calgrid.configuration.cards import (
    BATCH,
    PASS_SECONDS,
    PASS_SECONDS_A_MULTIPLY_ADD,
    PIXELS,
    Card,
)
from calgrid.configuration.runs import Run
from calgrid.configuration.study import Study
from calgrid.datasets.encoded import ENCODED_ABOVE
from calgrid.datasets.prepared import SHIFT_SPLIT
from calgrid.errors import unknown_id
from calgrid.storage.layout import RunKey, image_set_of
from calgrid.training.protocol import MOST_TRAIN_ROWS, TrainingProtocol

#: cost of a forward pass as a share of a forward and backward pass
FORWARD_SHARE = 1 / 3
#: seconds of a processor core per second of a GPU
CORE_SLOWER = 50
#: assumptions about users' images and backbones of unknown size: those of large ones
UNKNOWN_SHAPE, UNKNOWN_CLASSES = (3, 64, 64), 200
UNKNOWN_BACKBONE: Mapping[str, Any] = {
    "parameters": {1000: 90_000_000},
    "num_features": 2048,
    "image_size": 224,
    "macs": 20 * 10**9,
}
#: bytes of a number in checkpoints and logits files
FLOAT = 4
#: size of a corrupted image that stays encoded as a share of its pixels: noise of severity 5 (JPEG,
#: quality 85, 224x224), an upper bound for others
ENCODED_SHARE = 1 / 4
#: manifest, aggregate, tables, figures, report
JOBS_AT_THE_END = 5


@dataclass(frozen=True)
class RunCost:
    """Hours of a run, on a GPU or on a core, and bytes of its checkpoints, logits and features."""

    key: RunKey
    train_hours: float
    predict_hours: float
    bytes: int


def count_jobs(study: Study) -> dict[str, int]:
    """Number of jobs of each kind."""
    predicted = sum(key in study.trained for key in study.evaluations)
    return {
        "prepare_data": len(study.prepared()),
        "train": len({*study.training.values()}),
        "predict": predicted,
        "ensemble": len(study.ensembles),
        "import": len(study.external),
        "calibrate": len(study.evaluations),
        "probe": sum(len(evaluation.probes) for evaluation in study.evaluations.values()),
        "aggregate and report": JOBS_AT_THE_END,
    }


#: protocol, data set and backbone
Place = tuple[str, str, str]


def run_costs(
    study: Study,
    throughput: Mapping[str, float],
    measured: Mapping[Place, float] | None = None,
    on_core: bool | None = None,
    card: Card | None = None,
) -> list[RunCost]:
    """Costs of the trained runs that are evaluated, and of first stages. A network that several
    runs test counts in the first of them.

    Parameters
    ----------
    study : checked study.
    throughput : backbone -> images per second in training, in place of the estimate.
    measured : the same of places, where ``throughput`` has no backbone.
    on_core : whether the estimates are for a processor core; default: if the study says so.
    card : GPU whose measured speeds take the place of estimates, where it has them.

    Raises
    ------
    ConfigError : a backbone of ``throughput`` that the study does not train.
    """
    backbones = {key.backbone for key in study.trained}
    for backbone in throughput:
        if backbone not in backbones:
            raise unknown_id("backbone", backbone, backbones, "--throughput")
    if on_core is None:
        on_core = study.config.device == "cpu"
    stages = {run.first_stage for run in study.trained.values()}
    made: set[RunKey] = set()
    costs = []
    for key, run in study.trained.items():
        if key in study.evaluations or key in stages:
            speed = throughput.get(key.backbone) or (measured or {}).get(key[:3])
            predicted = None
            if card is not None and speed is None and (speed := card_speed(study, run, card)):
                predicted = card.predicted
            network = study.training[key]
            makes = network not in made
            costs.append(_run_cost(study, run, speed, predicted, on_core, makes))
            made.add(network)
    return costs


def card_speed(study: Study, run: Run, card: Card) -> float | None:
    """Training images per second of a run on a card; None if nothing like it was measured there."""
    protocol = run.protocol
    steps = card.steps.get(run.key.backbone)
    if steps is None or not isinstance(protocol, TrainingProtocol):
        return None
    plain = protocol.precision == "bf16" and not protocol.deterministic and protocol.gpus == 1
    if not plain or protocol.batch_size < BATCH or _pixels(study, run) > PIXELS:
        return None
    able = registry.describe("procedure", run.method.procedure).info["cuda_graph"]
    return card.share * steps[bool(able and protocol.cuda_graph)]


def measured_runs(study: Study, stated: Collection[str]) -> dict[Place, tuple[RunKey, int]]:
    """Run to measure for each protocol, data set and backbone, and the passes of its steps; without
    backbones that are ``stated``, second stages, and images of unknown size.
    """
    found: dict[Place, tuple[RunKey, int]] = {}
    for key, run in study.trained.items():
        shape = study.datasets.describe(key.dataset).info.get("image_shape")
        known = shape and count_classes(study, key.dataset)
        if known and run.first_stage is None and isinstance(run.protocol, TrainingProtocol):
            passes = registry.describe("procedure", run.method.procedure).info.get("passes", 1)
            if key.backbone not in stated and passes < found.get(key[:3], (key, math.inf))[1]:
                found[key[:3]] = (key, passes)
    return found


def count_classes(study: Study, dataset: str) -> int:
    """Number of classes of a data set; 0 if unknown before its preparation."""
    counts = study.datasets.class_counts(dataset)
    if counts is not None:
        return len(counts["train"])
    return study.datasets.describe(dataset).info.get("n_classes") or 0


def image_counts(study: Study, dataset: str) -> dict[str, int]:
    """Images of each split of a data set; 0 if unknown before its preparation."""
    return {"train": 0, "val": 0, "test": 0, **(study.datasets.sizes(dataset) or {})}


def scored_images(study: Study, image_set: str) -> int:
    """Images of all conditions of a shift, or of the test split of an out-of-distribution set."""
    info = study.datasets.describe(image_set).info
    if SHIFT_SPLIT in info.get("sizes", {}):
        return int(info["sizes"][SHIFT_SPLIT])
    conditions = len(info.get("shifts", ("",))) * len(info.get("severities", (0,)))
    test = image_counts(study, info.get("base") or image_set)["test"]
    most = study.datasets.options.get(image_set, {}).get("images")  # of corruptions
    return conditions * min(test, most or test)


def backbone_info(backbone: str) -> Mapping[str, Any]:
    """Metadata of a backbone; where they cannot be measured, those of a large one."""
    info = measured(backbone).info
    if info["library"]:
        info = measured_timm(backbone)
    return {**UNKNOWN_BACKBONE, **info}


def _pass_seconds(study: Study, run: Run) -> float:
    """GPU seconds of a forward and backward pass over an image, at the network's input size."""
    backbone, pixels = backbone_info(run.key.backbone), _pixels(study, run)
    multiply_adds = backbone["macs"] * pixels / backbone["image_size"] ** 2
    least = PASS_SECONDS * max(pixels / 32**2, 0.25)
    return max(least, PASS_SECONDS_A_MULTIPLY_ADD * multiply_adds)


def _pixels(study: Study, run: Run) -> int:
    """Pixels of an image at the network's input."""
    crop = run.protocol.crop_size
    shape = study.datasets.describe(run.key.dataset).info.get("image_shape") or UNKNOWN_SHAPE
    return math.prod(shape[1:]) if crop is None else crop * crop


def _run_cost(
    study: Study,
    run: Run,
    speed: float | None,
    most_predicted: float | None,
    on_core: bool,
    makes: bool,
) -> RunCost:
    """Cost of a run, with that of its network if it ``makes`` it.

    ``speed`` are training images per second, ``most_predicted`` those of a prediction at most.
    """
    key, protocol = run.key, run.protocol
    count, info = image_counts(study, key.dataset), backbone_info(key.backbone)
    classes = count_classes(study, key.dataset) or UNKNOWN_CLASSES
    slower = CORE_SLOWER if on_core else 1
    seconds = slower * _pass_seconds(study, run) if speed is None else 1 / speed
    procedure = registry.describe("procedure", run.method.procedure).info
    passes = procedure.get("passes", 1)
    if run.first_stage is not None:
        passes = FORWARD_SHARE
    epoch = passes * count["train"] + FORWARD_SHARE * count["val"]
    searched = run.method.procedure_options.get(procedure.get("search_epochs", ""), 0)
    epochs = protocol.epochs + searched if isinstance(protocol, TrainingProtocol) else 0
    train_hours = epochs * epoch * seconds / 3600
    checkpoints = len(run.checkpoints)
    parameters = info["parameters"].get(classes, max(info["parameters"].values()))
    if not makes:
        train_hours, parameters = 0.0, 0
    if key not in study.evaluations:  # only a first stage, which has no logits
        return RunCost(key, train_hours, 0.0, checkpoints * FLOAT * parameters)
    clean = count["val"] + count["test"]
    shifted = sum(scored_images(study, image_set_of(name)) for name in study.families(key))
    predicted = clean + shifted
    if protocol.export_features == "train":
        predicted += min(count["train"], MOST_TRAIN_ROWS)
    exported: dict[object, int] = {False: 0, True: clean}
    with_features = exported.get(protocol.export_features, predicted)
    numbers = parameters + predicted * classes + with_features * info["num_features"]
    forward = max(FORWARD_SHARE * seconds, 1 / (most_predicted or math.inf))
    predict_hours = checkpoints * predicted * forward / 3600
    return RunCost(key, train_hours, predict_hours, checkpoints * FLOAT * numbers)


def archive_bytes(study: Study, downloaded: bool) -> dict[str, int | None]:
    """Sizes of the archives of data sets that are downloaded, or that the user must provide; None
    if unknown.
    """
    sizes = {}
    for image_set in study.image_sets():
        info = study.datasets.describe(image_set).info
        if info.get("download", False) == downloaded:
            for file in info.get("files", ()):
                sizes[file["name"]] = file.get("size")
    return sizes


def prepared_bytes(study: Study, image_set: str) -> int:
    """Bytes of prepared images: 8 bits per channel, or the size of the original files if images
    stay encoded.
    """
    info = study.datasets.describe(image_set).info
    pixels = math.prod(info.get("image_shape") or UNKNOWN_SHAPE)
    is_shift = info.get("base") is not None
    splits = (
        [scored_images(study, image_set)] if is_shift else image_counts(study, image_set).values()
    )
    arrays = sum(splits) * pixels
    if not info.get("encoded", False) or max(splits) * pixels <= ENCODED_ABOVE:
        return arrays
    if is_shift:  # encoded after cropping
        return round(ENCODED_SHARE * arrays)
    return min(arrays, sum(file.get("size", 0) for file in info.get("files", ())) or arrays)
