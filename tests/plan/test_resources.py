"""What jobs ask a scheduler for: at least what was measured, more for large data, more with each
attempt.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from calgrid.errors import ConfigError
from calgrid.plan.kinds import DAY
from calgrid.plan.resources import CUDA_MB, Resources
from calgrid.study.study import Study
from calgrid.study.yaml_files import read_configuration

#: largest peak of each kind of job in ``benchmarks/full_size.md`` in MB, with Snakemake on the node
PEAKS = {
    "data": 544,
    "train": 1215,
    "predict": 990,
    "import": 823 + 200,
    "calibrate": 468,
    "aggregate": 419,
    "report": 557,
}
#: peak of a calibration of 25,000 + 25,000 + 40,000 rows, 1,000 classes, 2,048 features
IMAGENET_PEAK = 6276 + 200
#: hours of the longest training of MaC-Cal, Table 4, on one A40
LONGEST_TRAINING = 6.4


def job(**wildcards):
    defaults = {
        "protocol": "digits",
        "dataset": "digits",
        "backbone": "resnet8",
        "method": "ce",
        "seed": "1",
        "image_set": "digits",
    }
    return SimpleNamespace(**{**defaults, **wildcards})


@pytest.fixture
def make(study):
    def resources(gpus=1, **grid):
        return Resources(study(grid, data_root="data"), gpus)

    return resources


def test_memory_and_time_grow_with_each_attempt(make):
    needs = make()
    for kind in ("train", "predict", "probe", "calibrate", "data", "aggregate"):
        memory = needs.memory(kind)
        first = memory(job(), attempt=1)
        assert [memory(job(), attempt=attempt) for attempt in (2, 3)] == [2 * first, 3 * first]
    for kind in ("predict", "probe", "calibrate", "data"):
        minutes = needs.minutes(kind)
        first = minutes(job(), attempt=1)
        assert minutes(job(), attempt=2) == 2 * first
        assert minutes(job(), attempt=1000) == DAY
    assert needs.minutes("train")(job(), attempt=2) == needs.minutes("train")(job(), attempt=1)


def test_large_data_get_more_of_everything(make):
    needs = make(datasets=["tiny_imagenet", "cub200"])
    small, large = job(dataset="tiny_imagenet"), job(dataset="cub200")
    for kind in ("train", "predict", "probe", "calibrate"):
        memory, threads = needs.memory(kind), needs.threads(kind)
        assert memory(large, attempt=1) >= 2 * memory(small, attempt=1)
        assert threads(large) > threads(small) == 1
    assert needs.minutes("train")(large, 1) == 2 * needs.minutes("train")(small, 1) == DAY
    image_sets = {"digits": 1, "cifar10_c": 1, "imagenet": 8, "imagenet_c": 8}
    assert {
        image_set: needs.threads("data")(job(image_set=image_set)) for image_set in image_sets
    } == image_sets


def test_images_of_unknown_size_are_large(study, tmp_path):
    for name in ("train", "test"):
        (tmp_path / name).mkdir()
    mine = {"base": "image_folder", "val_size": 9}
    datasets = {"unsized": mine, "sized": {**mine, "image_size": 32}}
    needs = Resources(study(datasets=datasets, data_root=str(tmp_path)), gpus=0)
    assert needs.memory("data")(job(image_set="unsized"), 1) > needs.memory("data")(
        job(image_set="sized"), 1
    )


def test_a_gpu_adds_its_libraries_to_the_memory(make):
    on_gpu, on_cpu = make(gpus=1), make(gpus=0)
    assert (on_gpu.gpus("train")(job()), on_cpu.gpus("train")(job())) == (1, 0)
    for kind in ("train", "predict", "probe"):
        without = on_cpu.memory(kind)(job(), 2)
        assert on_gpu.memory(kind)(job(), 2) == without + 2 * CUDA_MB


def test_a_training_on_several_gpus_asks_for_all_of_them_and_other_jobs_for_one(study):
    protocols = {"four": {"base": "digits", "gpus": 4}}
    methods = ["ce", "tst"]
    needs, one = (
        Resources(study({"protocol": name, "methods": methods}, protocols=protocols), gpus=1)
        for name in ("four", "digits")
    )
    shared, alone = job(protocol="four"), job()
    assert needs.gpus("train")(shared) == needs.threads("train")(shared) == 4
    assert needs.memory("train")(shared, 2) == 4 * one.memory("train")(alone, 2)
    for kind, wanted in (("predict", shared), ("train", job(protocol="four", method="tst"))):
        assert needs.gpus(kind)(wanted) == needs.threads(kind)(wanted) == 1


def test_published_weights_ask_for_no_gpu_and_an_hour(make):
    needs = make(
        protocol="published",
        datasets=["imagenet"],
        backbones=["imagenet_resnet50"],
        methods=["ce"],
    )
    wanted = job(protocol="published", dataset="imagenet", backbone="imagenet_resnet50")
    assert (needs.gpus("train")(wanted), needs.minutes("train")(wanted, 1)) == (0, 60)
    assert needs.memory("train")(wanted, 1) < needs.memory("predict")(wanted, 1)


def test_external_logits_are_large_by_their_files(study, tmp_path):
    np.savez(tmp_path / "small.npz", logits=np.zeros((100, 10), np.float32), label=np.zeros(100))
    with (tmp_path / "large.npz").open("wb") as file:
        file.truncate(2 * 10**8)
    files = {"small": "small.npz", "large": "large.npz"}
    external = {
        name: {"kind": "logits", "split_seed": 1, "test": path} for name, path in files.items()
    }
    of_one = {"dataset": "own", "calibrators": ["none"]}
    for number, seed in enumerate((1, 2)):
        external[f"member{number}"] = {**external["large"], **of_one, "seed": seed}
    ensembles = {"methods": ["ens2(ce)"]}
    made = study(data_root=str(tmp_path), external=external, ensembles=ensembles)
    needs = Resources(made, gpus=1)
    (pooled,) = made.ensembles
    small, large = (
        job(**next(key for key in made.external if key.dataset == name)._asdict()) for name in files
    )
    assert needs.memory("import")(large, 1) > 2 * needs.memory("import")(small, 1)
    assert needs.memory("calibrate")(large, 1) > 2 * needs.memory("calibrate")(small, 1)
    assert (needs.threads("calibrate")(small), needs.threads("calibrate")(large)) == (1, 2)
    memory = needs.memory("calibrate")
    assert memory(job(**pooled._asdict()), 1) == memory(large, 1)


def test_an_aggregation_of_many_runs_has_several_processes(make):
    few = make()
    many = make(methods=["ce"], seeds=list(range(500)))
    assert (few.threads("aggregate")(None), many.threads("aggregate")(None)) == (1, 4)
    one_condition = 4 * (1000 + 4 * 500)
    assert many.memory("aggregate")(None, 1) == one_condition
    two = make(methods=["ce"], seeds=list(range(500)), backbones=["resnet8", "resnet20"])
    assert two.memory("aggregate")(None, 1) == one_condition


def shipped(home):
    """Shipped studies whose files are all here."""
    config = home / "config"
    paths = [*config.glob("*.yaml"), *config.glob("papers/*/study.yaml")]
    for path in sorted([*paths, *config.glob("studies/*.yaml")]):
        try:
            yield Study(read_configuration(path), home)
        except ConfigError as error:
            assert "does not exist" in str(error)


def test_no_job_of_a_shipped_study_asks_for_less_than_twice_what_was_measured(home):
    studies = list(shipped(home))
    assert {"digits", "fedlas", "maccal", "smart"} <= {made.folder.name for made in studies}
    for made in studies:
        needs = Resources(made, gpus=0)
        for image_set in made.image_sets():
            assert needs.memory("data")(job(image_set=image_set), 1) >= 2 * PEAKS["data"]
        for key in made.trained:
            assert needs.memory("train")(key, 1) >= 2 * PEAKS["train"]
            assert needs.memory("predict")(key, 1) >= 2 * PEAKS["predict"]
            weights_only = needs.minutes("train")(key, 1) == 60
            assert weights_only or needs.minutes("train")(key, 1) > 60 * LONGEST_TRAINING
        for key in made.evaluations:
            imagenet = key.dataset.startswith("imagenet")
            peak = IMAGENET_PEAK if imagenet else PEAKS["calibrate"]
            assert needs.memory("calibrate")(key, 1) >= 2 * peak
        for key in made.external:
            assert needs.memory("import")(key, 1) >= 2 * PEAKS["import"]
        assert needs.memory("aggregate")(None, 1) >= 2 * PEAKS["aggregate"]
        for rule in ("tables", "figures", "report"):
            assert needs.memory(rule)(None, 1) >= 2 * PEAKS["report"]
