"""Estimated costs of a study: jobs, hours of a GPU and of a processor core, downloads and disk.

GPU hours are images times seconds per image (:class:`Resources`). For all methods a training step
counts as one forward and backward pass over its images. A forward pass alone (scoring, the frozen
layers in a second stage) counts as a third of that. Disk is the size of uncompressed arrays.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from calgrid.configuration.protocols import FOCAL_CALIBRATION, checkpoint_file, trains
from calgrid.configuration.resources import FORWARD_SHARE, Resources, backbone_facts
from calgrid.configuration.study import Study
from calgrid.errors import unknown_id
from calgrid.storage.layout import RunKey, family_unit

#: bytes of a number in checkpoints and logits files
FLOAT = 4
#: compressed size of an image with noise of severity 5 (JPEG, quality 85, 224x224), an upper bound
#: for others
ENCODED_SHARE = 1 / 4
#: jobs after calibration: manifest, aggregate, tables, figures, report
JOBS_AT_THE_END = 5


class RunCost(NamedTuple):
    """GPU hours of a run, and bytes of its checkpoints, logits and features."""

    key: RunKey
    train_hours: float
    predict_hours: float
    bytes: int


class StudyCost(NamedTuple):
    """Costs of a study: jobs and core hours by stage, trained runs, bytes of files (None if
    unknown).
    """

    jobs: Mapping[str, int]
    runs: list[RunCost]
    core_hours: Mapping[str, float]
    #: archives and weights
    downloads: Mapping[str, int | None]
    #: files that the user must provide
    brought: Mapping[str, int | None]
    #: images of data sets and shift families
    prepared: Mapping[str, int]
    #: data sets with an unknown number of images
    unknown: list[str]


def study_cost(study: Study, throughput: Mapping[str, float] | None = None) -> StudyCost:
    """Estimate the costs of a study without any existing results.

    ``throughput`` replaces estimates: backbone -> images per second of a GPU in training. A
    backbone that the study does not train raises ConfigError.
    """
    needs = Resources(study, gpus=1)
    trained = list(study.trained)
    evaluated = [key for key in study.evaluations if key in study.trained]
    throughput = throughput or {}
    for backbone in throughput:
        if backbone not in (known := {key.backbone for key in trained}):
            raise unknown_id("backbone", backbone, known, "--throughput")
    units = study.data_units()
    probes = sum(len(evaluation.probes) for evaluation in study.evaluations.values())
    return StudyCost(
        {
            "prepare_data": len(units),
            "train": len(trained),
            "predict": len(evaluated),
            "import": len(study.evaluations) - len(evaluated),
            "calibrate": len(study.evaluations),
            **({"probe": probes} if probes else {}),
            "aggregate and report": JOBS_AT_THE_END,
        },
        [_run_cost(study, needs, key, throughput) for key in trained],
        {
            "prepare_data": sum(map(needs.prepare_seconds, units)) / 3600,
            "calibrate": sum(map(needs.calibrate_seconds, study.evaluations)) / 3600,
        },
        {**_archives(needs, units, downloaded=True), **_weights(study)},
        _archives(needs, units, downloaded=False),
        {unit: _prepared(needs, unit) for unit in units},
        [unit for unit in units if not needs.info(unit).get("base") and not needs.is_counted(unit)],
    )


def _run_cost(
    study: Study, needs: Resources, key: RunKey, throughput: Mapping[str, float]
) -> RunCost:
    run, images, facts = study.trained[key], needs.images(key.dataset), backbone_facts(key.backbone)
    an_image = (
        1 / throughput[key.backbone] if key.backbone in throughput else needs.pass_seconds(key)
    )
    trained = images["train"] * (1.0 if run.first_stage is None else FORWARD_SHARE)
    seconds = run.protocol["epochs"] * (trained + images["val"] * FORWARD_SHARE) * an_image
    checkpoints = len(run.checkpoints)
    parameters = facts["parameters"]
    size = (
        checkpoints * FLOAT * parameters.get(needs.classes(key.dataset), max(parameters.values()))
    )
    if key not in study.evaluations:  # only a first stage, which has no logits
        return RunCost(key, seconds / 3600, 0.0, size)
    families = sum(needs.scored(family_unit(family)) for family in study.families(key))
    own = images["val"] + images["test"]
    exported = {False: 0, True: own, "all": own + families}[run.protocol["export_features"]]
    numbers = (own + families) * needs.classes(key.dataset) + exported * facts["num_features"]
    scoring = checkpoints * (own + families) * FORWARD_SHARE * an_image
    return RunCost(key, seconds / 3600, scoring / 3600, size + checkpoints * FLOAT * numbers)


def _archives(needs: Resources, units: Iterable[str], downloaded: bool) -> dict[str, int | None]:
    """Sizes of the files of data sets that are downloaded, or that are not."""
    chosen = [
        info for unit in units if (info := needs.info(unit)).get("download", False) == downloaded
    ]
    return {file["name"]: file.get("size") for info in chosen for file in info.get("files", ())}


def _weights(study: Study) -> dict[str, int | None]:
    """Sizes of the published weights that runs use or start from."""
    found: dict[str, int | None] = {}
    for key, run in study.trained.items():
        size = FLOAT * max(backbone_facts(key.backbone)["parameters"].values())
        if run.protocol["weights"] == FOCAL_CALIBRATION:
            file = checkpoint_file(key.dataset, key.backbone, run.method, key.path)
            found[f"{file['folder']}/{file['name']}"] = size
        elif run.first_stage is None and (run.protocol["pretrained"] or not trains(run.protocol)):
            found[f"weights of {key.backbone}"] = size
    return found


def _prepared(needs: Resources, unit: str) -> int:
    """Bytes of prepared images: 8 bits per channel, or the size of the original files if images
    stay encoded.
    """
    info = needs.info(unit)
    images = needs.scored(unit) if info.get("base") else sum(needs.images(unit).values())
    arrays = images * math.prod(needs.shape(unit))
    if not needs.is_encoded(unit):
        return arrays
    if info.get("base"):  # encoded after cropping
        return round(ENCODED_SHARE * arrays)
    return min(arrays, sum(file.get("size", 0) for file in info.get("files", ())) or arrays)
