"""What jobs ask a scheduler for grows with data set, backbone, protocol and attempt, and stays within bounds."""

import copy
from types import SimpleNamespace

import pytest

from calgrid import registry
from calgrid.configuration.resources import (
    BASE_MB,
    MAX_MINUTES,
    MIN_MINUTES,
    SCORED_AT_ONCE,
    SCORED_PIXELS,
    Resources,
)
from calgrid.configuration.study import Study

CIFAR = ("resnet8", "resnet18", "densenet121", "resnet50", "resnet101", "resnet110", "wrn26_10")


def job(**wildcards):
    defaults = {"protocol": "digits", "dataset": "digits", "backbone": "resnet8", "method": "ce", "seed": "1"}
    return SimpleNamespace(**{**defaults, **wildcards})


@pytest.fixture
def make(make_config, home):
    def resources(gpus=1, epochs=None, **grid):
        config = make_config({"backbones": ["resnet8", "resnet20"], "methods": ["ce", "tst"], **grid})
        if epochs is not None:
            config = copy.deepcopy(config)
            config["protocols"] = {"longer": {"base": "digits", "epochs": epochs}}
            config["grids"][0]["protocol"] = "longer"
        return Resources(Study(config, home), gpus)

    return resources


def test_memory_grows_with_each_attempt(make):
    needs = make()
    functions = [needs.train_memory, needs.calibrate_memory, needs.predict_memory]
    for function in functions:
        first = function(job(), attempt=1)
        assert first >= BASE_MB
        assert [function(job(), attempt=attempt) for attempt in (2, 3)] == [2 * first, 3 * first]


def test_memory_grows_with_the_backbone(make):
    needs = make()
    extra = needs.train_memory(job(backbone="resnet20"), 1) - needs.train_memory(job(), 1)
    weights = (272_474 - 75_290) * 4 / 2**20
    assert weights < extra < 20 * weights


@pytest.fixture
def cifar(make_config, home, tmp_path):
    """What runs of 350 epochs on CIFAR-10 need, for all its networks and one that is known by name alone."""

    def resources(gpus=1):
        grid = {"datasets": ["cifar10"], "protocol": "aclsline", "methods": ["ce"]}
        config = make_config({**grid, "backbones": [*CIFAR, "timm/resnet50"]}, data_root=str(tmp_path))
        return Resources(Study(config, home), gpus)

    return resources


def on_cifar(backbone):
    return job(protocol="aclsline", dataset="cifar10", backbone=backbone)


def test_time_grows_with_the_multiplications_of_the_backbone(cifar):
    costs = {name: registry.spec("backbone", name).info["macs"] for name in CIFAR}
    needs = cifar()
    minutes = {name: needs.train_minutes(on_cifar(name)) for name in CIFAR}
    assert sorted(CIFAR, key=minutes.get) == sorted(CIFAR, key=costs.get)
    # hours that MaC-Cal reports for one A40, table 4
    for name, hours in {"resnet50": 3.8, "wrn26_10": 5.8, "resnet110": 6.4}.items():
        assert hours < minutes[name] / 60 < 10 * hours


def test_a_model_of_a_library_gets_what_a_large_one_needs(cifar):
    needs = cifar()
    assert needs.train_memory(on_cifar("timm+resnet50"), 1) > needs.train_memory(on_cifar("resnet110"), 1)
    assert needs.predict_memory(on_cifar("timm+resnet50"), attempt=1) > BASE_MB
    assert needs.train_minutes(on_cifar("timm+resnet50")) > needs.train_minutes(on_cifar("resnet8"))


def test_without_a_gpu_the_activations_of_a_batch_lie_in_memory(cifar):
    info = registry.spec("backbone", "resnet50").info
    batch = 4 * 128 * info["activations"] / 2**20
    extra = cifar(gpus=0).train_memory(on_cifar("resnet50"), 1) - cifar(gpus=1).train_memory(on_cifar("resnet50"), 1)
    assert batch <= extra + 1 < 2 * batch


def test_images_are_scored_in_batches_of_the_size_that_memory_is_asked_for():
    from calgrid.stages.predict import BATCH
    from calgrid.training.data import PIXELS_AT_ONCE
    from calgrid.training.trainer import EVALUATION_BATCH

    assert SCORED_AT_ONCE == BATCH == EVALUATION_BATCH
    assert max(PIXELS_AT_ONCE.values()) == SCORED_PIXELS  # on a processor fewer


def test_a_data_set_of_unknown_size_gets_more_than_a_small_one(make):
    needs = make()
    small, unknown = (needs.predict_memory(job(dataset=dataset), 1) for dataset in ("digits", "somebodys"))
    assert unknown > small + 1000
    assert needs.calibrate_memory(job(dataset="somebodys"), 1) > needs.calibrate_memory(job(), 1)


def test_time_grows_with_the_protocol_and_without_a_gpu_and_has_bounds(make):
    def minutes(epochs, gpus):
        return make(gpus, epochs).train_minutes(job(protocol="longer"))

    assert minutes(60, gpus=1) == MIN_MINUTES + 1
    assert MIN_MINUTES < minutes(100_000, gpus=1) < minutes(100_000, gpus=0)
    assert minutes(10**8, gpus=0) == MAX_MINUTES


def test_a_second_stage_is_given_the_time_of_its_own_epochs(make):
    needs = make(gpus=0, epochs=1_000_000)
    assert needs.train_minutes(job(protocol="longer", method="tst")) < needs.train_minutes(job(protocol="longer"))


def test_what_holds_all_numbers_grows_with_the_runs(make):
    assert make(seeds=list(range(500))).report_memory() > make().report_memory() >= BASE_MB


def test_only_many_and_large_pictures_are_decoded_by_several_threads(make):
    threads = {
        unit: make().prepare_threads(job(unit=unit)) for unit in ("digits", "cifar10_c", "imagenet", "imagenet_c")
    }
    assert threads == {"digits": 1, "cifar10_c": 1, "imagenet": 8, "imagenet_c": 8}


def test_preparation_is_given_time_for_many_and_large_images(make):
    minutes = {unit: make().prepare_minutes(job(unit=unit)) for unit in ("digits", "tiny_imagenet", "imagenet_c")}
    assert minutes["digits"] == MIN_MINUTES + 1
    assert minutes["digits"] < minutes["tiny_imagenet"] < minutes["imagenet_c"] < MAX_MINUTES
    # 19 settings of 40,000 images
    assert minutes["imagenet_c"] > MIN_MINUTES + 760_000 * 0.0025 / 60
