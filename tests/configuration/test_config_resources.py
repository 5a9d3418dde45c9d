"""What jobs ask a scheduler for grows with data set, backbone, protocol and attempt, and stays within bounds."""

import copy
from types import SimpleNamespace

import pytest

from calgrid.configuration.resources import BASE_MB, LEAST_MINUTES, MOST_MINUTES, Resources
from calgrid.configuration.study import Study


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
    functions = [needs.train_memory, needs.calibrate_memory, needs.predict_memory("digits")]
    for function in functions:
        first = function(job(), attempt=1)
        assert first >= BASE_MB
        assert [function(job(), attempt=attempt) for attempt in (2, 3)] == [2 * first, 3 * first]


def test_memory_grows_with_the_backbone(make):
    needs = make()
    extra = needs.train_memory(job(backbone="resnet20"), 1) - needs.train_memory(job(), 1)
    weights = (269_722 - 75_290) * 4 / 2**20
    assert weights < extra < 20 * weights


def test_a_data_set_of_unknown_size_gets_more_than_a_small_one(make):
    needs = make()
    small, unknown = (needs.predict_memory(dataset)(job(), attempt=1) for dataset in ("digits", "somebodys"))
    assert unknown > small + 1000
    assert needs.calibrate_memory(job(dataset="somebodys"), 1) > needs.calibrate_memory(job(), 1)


def test_time_grows_with_the_protocol_and_without_a_gpu_and_has_bounds(make):
    def minutes(epochs, gpus):
        return make(gpus, epochs).train_minutes(job(protocol="longer"))

    assert minutes(60, gpus=1) == LEAST_MINUTES + 1
    assert LEAST_MINUTES < minutes(100_000, gpus=1) < minutes(100_000, gpus=0)
    assert minutes(10**8, gpus=0) == MOST_MINUTES


def test_a_second_stage_is_given_the_time_of_its_own_epochs(make):
    needs = make(gpus=0, epochs=1_000_000)
    assert needs.train_minutes(job(protocol="longer", method="tst")) < needs.train_minutes(job(protocol="longer"))


def test_aggregation_grows_with_the_runs(make):
    assert make(seeds=list(range(500))).aggregate_memory() > make().aggregate_memory() >= BASE_MB


def test_preparation_is_given_time_for_many_and_large_images(make):
    minutes = {unit: make().prepare_minutes(job(unit=unit)) for unit in ("digits", "tiny_imagenet", "imagenet_c")}
    assert minutes["digits"] == LEAST_MINUTES + 1
    assert minutes["digits"] < minutes["tiny_imagenet"] < minutes["imagenet_c"] < MOST_MINUTES
    # 19 settings of 40,000 images
    assert minutes["imagenet_c"] > LEAST_MINUTES + 760_000 * 0.0025 / 60
