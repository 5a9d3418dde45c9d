"""Cost of a study: jobs, images passed through its networks, downloads and prepared images.

Speeds are measured, here or by finished trainings (``calgrid cost``); nothing here estimates one.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from calgrid.components import registry
from calgrid.datasets.prepared import SHIFT_SPLIT
from calgrid.storage.records import RunKey, image_set_of
from calgrid.study.runs import Run
from calgrid.study.study import Study
from calgrid.training.protocol import MOST_TRAIN_ROWS, TrainingProtocol

#: a forward pass (scoring, the frozen layers of a second stage) as a share of a training pass
FORWARD_SHARE = 1 / 3


@dataclass(frozen=True)
class Work:
    """Training passes over an image: of a network's training, and of a run's predictions."""

    trained: float
    predicted: float


def work(study: Study, key: RunKey) -> Work:
    """Passes of a trained run. A shared training counts once, in the run that owns its folder;
    first stages without evaluation have no predictions.
    """
    run = study.trained[key]
    trained = training_passes(study, run) if study.training[key] == key else 0.0
    images = image_counts(study, run.key.dataset)
    predicted = images["val"] + images["test"]
    predicted += sum(shifted_images(study, image_set_of(name)) for name in study.families(key))
    if run.protocol.export_features == "train":
        predicted += min(images["train"], MOST_TRAIN_ROWS)
    passes = len(run.checkpoints) if key in study.evaluations else 0
    return Work(trained, FORWARD_SHARE * passes * predicted)


def training_passes(study: Study, run: Run) -> float:
    """Passes over an image in a training, including passes of its procedure and its validation."""
    if not isinstance(run.protocol, TrainingProtocol):
        return 0.0
    images = image_counts(study, run.key.dataset)
    procedure = registry.describe("procedure", run.method.procedure).info
    passes = FORWARD_SHARE if run.first_stage is not None else procedure.get("passes", 1)
    searched = run.method.procedure_options.get(procedure.get("search_epochs", ""), 0)
    epoch = passes * images["train"] + FORWARD_SHARE * images["val"]
    return float((run.protocol.epochs + searched) * epoch)


def measured_runs(study: Study) -> dict[tuple[str, ...], tuple[RunKey, int]]:
    """Run to measure for each protocol, data set and backbone, and the passes of its steps; none
    for second stages and images of unknown size.
    """
    found: dict[tuple[str, ...], tuple[RunKey, int]] = {}
    for key, run in study.trained.items():
        shape = study.datasets.describe(key.dataset).info.get("image_shape")
        known = shape and count_classes(study, key.dataset)
        if known and run.first_stage is None and isinstance(run.protocol, TrainingProtocol):
            passes = registry.describe("procedure", run.method.procedure).info.get("passes", 1)
            if passes < found.get(key[:3], (key, math.inf))[1]:
                found[key[:3]] = (key, passes)
    return found


def count_classes(study: Study, dataset: str) -> int:
    """Number of classes of a data set; 0 if unknown before its preparation."""
    counted = study.datasets.class_counts(dataset)
    if counted is not None:
        return len(counted["train"])
    return study.datasets.describe(dataset).info.get("n_classes") or 0


def image_counts(study: Study, dataset: str) -> dict[str, int]:
    """Images of each split of a data set; 0 if unknown before its preparation."""
    return {"train": 0, "val": 0, "test": 0, **(study.datasets.sizes(dataset) or {})}


def shifted_images(study: Study, image_set: str) -> int:
    """Images of all conditions of a shift, or of the test split of an out-of-distribution set; 0
    if unknown before its preparation.
    """
    info = study.datasets.describe(image_set).info
    if SHIFT_SPLIT in info.get("sizes", {}):
        return int(info["sizes"][SHIFT_SPLIT])
    conditions = len(info.get("shifts", ("",))) * len(info.get("severities", (0,)))
    test = image_counts(study, info.get("base") or image_set)["test"]
    most = study.datasets.options.get(image_set, {}).get("images")  # of corruptions
    return conditions * min(test, most or test)


def files(study: Study, downloaded: bool) -> Mapping[str, int | None]:
    """Bytes of the files of data sets, downloaded or provided by the user; None if unknown."""
    sizes: dict[str, int | None] = {}
    for image_set in study.image_sets():
        info = study.datasets.describe(image_set).info
        if info.get("download", False) == downloaded:
            sizes.update({file["name"]: file.get("size") for file in info.get("files", ())})
    return sizes


def prepared_bytes(study: Study, image_set: str) -> int:
    """Most bytes of prepared images: 8 bits a channel; 0 if their size or number is unknown."""
    info = study.datasets.describe(image_set).info
    is_shift = info.get("base") is not None
    images = (
        shifted_images(study, image_set)
        if is_shift
        else sum(image_counts(study, image_set).values())
    )
    return images * math.prod(info.get("image_shape") or (0,))
