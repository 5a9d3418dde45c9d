"""Estimated cost of a study: jobs, GPU hours, CPU core hours, downloads and disk.

GPU hours are the number of images times the seconds per image of :class:`Resources`. Every training step counts as one
forward and backward pass, whatever the method; a forward pass alone (scored images, the frozen body of a second stage)
counts as a third. Disk space is that of uncompressed arrays.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from calgrid.configuration.protocols import FOCAL_CALIBRATION, checkpoint_file, trains
from calgrid.configuration.resources import FORWARD_SHARE, Resources, backbone_facts
from calgrid.configuration.study import Study
from calgrid.errors import unknown_id
from calgrid.storage.layout import RunKey, family_unit

#: bytes per number of a checkpoint, a logits file or exported features
FLOAT = 4
#: JPEG bytes (quality 85, 224x224) per byte of pixels, for noise at severity 5; other corruptions take less
ENCODED_SHARE = 1 / 4
#: jobs after calibration: manifest, aggregate, tables, figures, report
JOBS_AT_THE_END = 5


class RunCost(NamedTuple):
    """Cost of one run: GPU hours, and bytes of checkpoints, logits and features."""

    key: RunKey
    train_hours: float
    predict_hours: float
    bytes: int


class StudyCost(NamedTuple):
    """Cost of a study.

    ``jobs`` maps stages to numbers of jobs, ``core_hours`` stages to CPU core hours. ``downloads`` are bytes per
    downloaded file (None if the size is not published), ``brought`` bytes per file that the user must fetch, and
    ``prepared`` bytes per data set or shift family. ``unknown`` are data sets with an unknown number of images.
    """

    jobs: Mapping[str, int]
    runs: list[RunCost]
    core_hours: Mapping[str, float]
    downloads: Mapping[str, int | None]
    brought: Mapping[str, int | None]
    prepared: Mapping[str, int]
    unknown: list[str]


def study_cost(study: Study, throughput: Mapping[str, float] | None = None) -> StudyCost:
    """Estimate the cost of a study, ignoring existing results.

    Raises ConfigError: a throughput is given for a backbone that the study does not train.

    Parameters
    ----------
    throughput : backbone -> training images per second on the GPU, which replaces the estimate.
    """
    needs = Resources(study, gpus=1)
    trained = list(study.trained)
    evaluated = [key for key in study.evaluations if key in study.trained]
    throughput = throughput or {}
    for backbone in throughput:
        if backbone not in (known := {key.backbone for key in trained}):
            raise unknown_id("backbone", backbone, known, "--throughput")
    units = study.data_units()
    jobs = {
        "prepare_data": len(units),
        "train": len(trained),
        "predict": len(evaluated),
        "import": len(study.evaluations) - len(evaluated),
        "calibrate": len(study.evaluations),
        **_probe_jobs(study),
        "aggregate and report": JOBS_AT_THE_END,
    }
    return StudyCost(
        jobs,
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


def _probe_jobs(study: Study) -> dict[str, int]:
    """Number of probe jobs; empty if the study has none."""
    probes = sum(len(evaluation.probes) for evaluation in study.evaluations.values())
    return {"probe": probes} if probes else {}


def _run_cost(study: Study, needs: Resources, key: RunKey, throughput: Mapping[str, float]) -> RunCost:
    run, images = study.trained[key], needs.images(key.dataset)
    an_image = 1 / throughput[key.backbone] if key.backbone in throughput else needs.pass_seconds(key)
    trained = images["train"] * (1.0 if run.first_stage is None else FORWARD_SHARE)
    seconds = run.protocol["epochs"] * (trained + images["val"] * FORWARD_SHARE) * an_image
    checkpoints = len(run.checkpoints)
    size = checkpoints * FLOAT * _parameters(needs, key)
    if key not in study.evaluations:  # a first stage that no grid names has no logits
        return RunCost(key, seconds / 3600, 0.0, size)
    families = sum(needs.scored(family_unit(family)) for family in study.families(key))
    own = images["val"] + images["test"]
    exported = {False: 0, True: own, "all": own + families}[run.protocol["export_features"]]
    numbers = (own + families) * needs.classes(key.dataset) + exported * backbone_facts(key.backbone)["num_features"]
    scoring = checkpoints * (own + families) * FORWARD_SHARE * an_image
    return RunCost(key, seconds / 3600, scoring / 3600, size + checkpoints * FLOAT * numbers)


def _parameters(needs: Resources, key: RunKey) -> int:
    known = backbone_facts(key.backbone)["parameters"]
    return known.get(needs.classes(key.dataset), max(known.values()))


def _archives(needs: Resources, units: Iterable[str], downloaded: bool) -> dict[str, int | None]:
    """Files of data sets and their sizes, either downloaded or not; variants of a data set share its files."""
    chosen = [info for unit in units if (info := needs.info(unit)).get("download", False) == downloaded]
    return {file["name"]: file.get("size") for info in chosen for file in info.get("files", ())}


def _weights(study: Study) -> dict[str, int | None]:
    """Published checkpoints and pretrained weights, with their size in float32."""
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
    """Bytes of prepared images: 8 bits per channel, or the size of the encoded files."""
    images = needs.scored(unit) if needs.info(unit).get("base") else sum(needs.images(unit).values())
    arrays = images * math.prod(needs.shape(unit))
    if not needs.is_encoded(unit):
        return arrays
    if needs.info(unit).get("base"):  # encoded at the network's input size
        return round(ENCODED_SHARE * arrays)
    return min(arrays, sum(file.get("size", 0) for file in needs.info(unit).get("files", ())) or arrays)
