"""What a study takes, against sums by hand."""

import pytest

from calgrid.configuration.costs import backbone_info, study_cost
from calgrid.configuration.files import read_configuration
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
    seconds = 7e-13 * 1_297_829_888
    images = 350 * (45_000 + 5_000 / 3)
    assert run.train_hours == pytest.approx(images * seconds / 3600)
    assert 3.8 < run.train_hours < 4.5  # MaC-Cal reports 3.8 on one A40
    # two checkpoints are scored on val and test
    assert run.predict_hours == pytest.approx(2 * 15_000 / 3 * seconds / 3600)


def test_a_processor_core_takes_fifty_times_as_long_as_a_gpu(costs):
    gpu, core = costs(CIFAR), costs(CIFAR, device="cpu")
    assert (gpu.processor, core.processor) == ("GPU", "core")
    assert core.runs[0].train_hours == pytest.approx(50 * gpu.runs[0].train_hours)
    assert core.runs[0].predict_hours == pytest.approx(50 * gpu.runs[0].predict_hours)


@pytest.mark.parametrize("method", ["mit_l", "mit_a"])
def test_both_passes_of_a_step_of_mit_are_counted(costs, method):
    (run,) = costs({**CIFAR, "methods": [method]}, {"resnet50": 1000.0}).runs
    assert run.train_hours == pytest.approx(350 * (2 * 45_000 + 5_000 / 3) / 1000 / 3600)


def test_every_backbone_of_the_papers_lies_near_the_hours_that_they_report(costs):
    """Hours that MaC-Cal reports for one A40, Table 4."""
    hours = {"resnet50": 3.8, "wrn26_10": 5.8, "resnet110": 6.4}
    for run in costs({**CIFAR, "backbones": list(hours)}).runs:
        reported = hours[run.key.backbone]
        assert reported < run.train_hours < 3 * reported


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
    total = costs(grid)
    jobs = {
        "prepare_data": 3,
        "train": 4,
        "predict": 4,
        "import": 0,
        "calibrate": 4,
        "probe": 0,
        "aggregate and report": 5,
    }
    assert total.jobs == jobs
    assert total.downloads["cifar-10-python.tar.gz"] == 170_498_071
    assert total.downloads["CIFAR-10-C.tar"] == 2_918_471_680
    assert total.prepared["cifar10"] == 60_000 * 3 * 32 * 32
    assert total.prepared["cifar10_c"] % (10_000 * 5 * 3 * 32 * 32) == 0
    assert total.unknown == []


def test_a_first_stage_that_nobody_asked_about_is_trained_and_not_scored(costs):
    total = costs({**CIFAR, "methods": ["tst"]})
    assert (total.jobs["train"], total.jobs["predict"]) == (2, 1)
    first = next(run for run in total.runs if run.key.method == "ce")
    assert first.predict_hours == 0
    assert first.bytes == 2 * 4 * 23_520_842


def test_variants_of_a_data_set_share_its_download_and_cost_by_the_crop(costs):
    grid = {
        "protocol": "finegrained",
        "datasets": ["cub200", "large"],
        "backbones": ["imagenet_resnet101"],
    }
    total = costs({**grid, "methods": ["ce"]}, datasets={"large": {"base": "cub200", "size": 448}})
    assert total.downloads == {"CUB_200_2011.tgz": 1_150_585_339}
    assert total.prepared["large"] == 11_788 * 3 * 448 * 448
    small, large = total.runs
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
    total = costs({**grid, "seeds": [1], "shifts": ["imagenet_c"]})
    assert total.prepared == {"imagenet": 6_744_924_160, "imagenet_c": 760_000 * 3 * 224 * 224 // 4}


def test_embedded_data_is_not_downloaded(costs):
    total = costs({})
    assert total.downloads == {}
    assert total.jobs["prepare_data"] == 1


def test_archives_without_size_and_those_that_the_user_provides(home):
    costs = study_cost(Study(read_configuration(home / "config/papers/smart.yaml"), home))
    corruptions = {f"{name}.tar" for name in ("noise", "blur", "weather", "digital", "extra")}
    assert {name for name, size in costs.downloads.items() if size is None} == {
        "ImageNet-Sketch.zip",
        *corruptions,
    }
    assert costs.manual_files == {
        "ILSVRC2012_img_val.tar": 6_744_924_160,
        "ILSVRC2012_devkit_t12.tar.gz": None,
    }
    assert costs.unknown == ["imagenet_sketch"]


def test_a_backbone_of_a_library_costs_what_a_large_one_does(costs):
    library, known = costs({**CIFAR, "backbones": ["timm/resnet50", "resnet50"]}).runs
    assert library.bytes > known.bytes
    assert library.key.backbone == "timm/resnet50"
    assert backbone_info("timm/resnet50")["macs"] > backbone_info("resnet50")["macs"]


def test_disk_space_is_near_that_of_a_finished_run(costs):
    """Bytes of a run of the default study: model and logits of val, test, and two shifts."""
    run, *_ = costs({"shifts": ["digits_c", "ood/photos"]}).runs
    measured = 308_424 + 20_662 + 49_315 + 1_224_328 + 37_225
    assert measured / 2 < run.bytes < 2 * measured
