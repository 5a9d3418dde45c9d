"""What a study takes, against sums by hand."""

import pytest

from calgrid.configuration.costs import study_cost
from calgrid.configuration.files import read_configuration
from calgrid.configuration.resources import Resources, backbone_facts
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError
from calgrid.storage.layout import RunKey


@pytest.fixture
def costs(study):
    return lambda grid, throughput=None, **changes: study_cost(
        study(grid, data_root="data", **changes), throughput
    )


CIFAR = {
    "protocol": "aclsline",
    "datasets": ["cifar10"],
    "backbones": ["resnet50"],
    "methods": ["ce"],
}


def test_hours_of_a_run_by_hand(costs):
    (run,) = costs(CIFAR).runs
    assert run.key == RunKey("aclsline", "cifar10", "resnet50", "ce", 1)
    an_image = 7e-13 * 1_297_829_888
    images = 350 * (45_000 + 5_000 / 3)
    assert run.train_hours == pytest.approx(images * an_image / 3600)
    assert 3.8 < run.train_hours < 4.5  # MaC-Cal reports 3.8 on one A40
    # two checkpoints are scored on val and test
    assert run.predict_hours == pytest.approx(2 * 15_000 / 3 * an_image / 3600)


def test_a_stated_throughput_takes_the_place_of_the_estimate(costs):
    (run,) = costs(CIFAR, {"resnet50": 1000.0}).runs
    assert run.train_hours == pytest.approx(350 * (45_000 + 5_000 / 3) / 1000 / 3600)
    assert run.predict_hours == pytest.approx(2 * 15_000 / 3 / 1000 / 3600)


def test_a_throughput_for_a_network_that_is_not_there_is_refused(costs, refuses):
    with refuses(
        ConfigError, "Unknown backbone 'resnet05' in --throughput", "did you mean 'resnet50'?"
    ):
        costs(CIFAR, {"resnet05": 1000.0})


def test_a_second_stage_costs_its_own_epochs_forth_only(costs):
    first, second = costs({**CIFAR, "methods": ["ce", "tst"]}, {"resnet50": 1000.0}).runs
    assert second.key.method == "tst"
    assert second.train_hours == pytest.approx(40 * (45_000 / 3 + 5_000 / 3) / 1000 / 3600)
    # its last checkpoint only is scored
    assert second.predict_hours == pytest.approx(first.predict_hours / 2)


def test_disk_and_scoring_of_a_run_with_shifts_by_hand(costs):
    (run,) = costs({**CIFAR, "shifts": ["ood/svhn"]}, {"resnet50": 1000.0}).runs
    weights = 23_520_842
    logits = (5_000 + 10_000 + 26_032) * 10
    features = 15_000 * 2048  # not those of the shifts
    assert run.bytes == 2 * 4 * (weights + logits + features)
    assert run.predict_hours == pytest.approx(2 * (15_000 + 26_032) / 3 / 1000 / 3600)


def test_jobs_downloads_and_prepared_images(costs):
    grid = {**CIFAR, "seeds": [1, 2], "methods": ["ce", "tst"], "shifts": ["ood/svhn", "cifar10_c"]}
    found = costs(grid)
    jobs = {
        "prepare_data": 3,
        "train": 4,
        "predict": 4,
        "import": 0,
        "calibrate": 4,
        "aggregate and report": 5,
    }
    assert found.jobs == jobs
    assert found.downloads["cifar-10-python.tar.gz"] == 170_498_071
    assert found.downloads["CIFAR-10-C.tar"] == 2_918_471_680
    assert found.prepared["cifar10"] == 60_000 * 3 * 32 * 32
    assert found.prepared["cifar10_c"] % (10_000 * 5 * 3 * 32 * 32) == 0
    assert found.unknown == []


def test_a_first_stage_that_nobody_asked_about_is_trained_and_not_scored(costs):
    found = costs({**CIFAR, "methods": ["tst"]})
    assert (found.jobs["train"], found.jobs["predict"]) == (2, 1)
    first = next(run for run in found.runs if run.key.method == "ce")
    assert first.predict_hours == 0
    assert first.bytes == 2 * 4 * 23_520_842


def test_variants_of_a_data_set_share_its_download_and_cost_by_the_crop(costs):
    grid = {
        "protocol": "finegrained",
        "datasets": ["cub200", "large"],
        "backbones": ["imagenet_resnet101"],
    }
    found = costs({**grid, "methods": ["ce"]}, datasets={"large": {"base": "cub200", "size": 448}})
    parameters = max(backbone_facts("imagenet_resnet101")["parameters"].values())
    assert found.downloads == {
        "CUB_200_2011.tgz": 1_150_585_339,
        "weights of imagenet_resnet101": 4 * parameters,
    }
    assert found.prepared["large"] == 11_788 * 3 * 448 * 448
    small, large = found.runs
    # both are cut to 224, for which the network's facts are
    assert small.train_hours == large.train_hours
    assert small.train_hours == pytest.approx(
        200 * (5_395 + 599 / 3) * 7e-13 * 7_801_405_440 / 3600
    )


def test_images_that_stay_encoded_count_as_their_files_do(costs):
    grid = {
        "protocol": "published",
        "datasets": ["imagenet"],
        "backbones": ["imagenet_resnet50"],
        "methods": ["ce"],
    }
    found = costs({**grid, "seeds": [1], "shifts": ["imagenet_c"]})
    assert found.prepared == {"imagenet": 6_744_924_160, "imagenet_c": 760_000 * 3 * 224 * 224 // 4}


def test_embedded_data_is_not_downloaded(costs):
    found = costs({})
    assert found.downloads == {}
    assert found.jobs["prepare_data"] == 1


def test_checkpoints_archives_without_size_and_what_must_be_brought(home):
    found = study_cost(Study(read_configuration(home / "config/papers/smart.yaml"), home))
    checkpoints = {
        name: size
        for name, size in found.downloads.items()
        if name.startswith("focal_calibration/")
    }
    assert len(checkpoints) == 48
    assert 5e9 < sum(checkpoints.values()) < 6e9
    assert sum(name.startswith("weights of ") for name in found.downloads) == 6
    corruptions = {f"{name}.tar" for name in ("noise", "blur", "weather", "digital", "extra")}
    assert {name for name, size in found.downloads.items() if size is None} == {
        "ImageNet-Sketch.zip",
        *corruptions,
    }
    assert found.brought == {
        "ILSVRC2012_img_val.tar": 6_744_924_160,
        "ILSVRC2012_devkit_t12.tar.gz": None,
    }


def test_hours_of_cores_are_those_that_jobs_ask_for(study):
    made = study({**CIFAR, "shifts": ["cifar10_c"]}, data_root="data")
    needs, found = Resources(made, gpus=1), study_cost(made)
    (key,) = made.evaluations
    assert found.core_hours["calibrate"] == pytest.approx(needs.calibrate_seconds(key) / 3600)
    assert found.core_hours["prepare_data"] == pytest.approx(
        (60_000 + 15 * 5 * 10_000) * 32 * 32 * 5e-8 / 3600
    )
