"""What a study takes, against sums by hand."""

import pytest

from calgrid.configuration.cards import CARDS
from calgrid.configuration.costs import (
    archive_bytes,
    backbone_info,
    count_jobs,
    image_counts,
    prepared_bytes,
    run_costs,
)
from calgrid.configuration.study import Study
from calgrid.configuration.yaml_files import read_configuration
from calgrid.errors import ConfigError
from calgrid.storage.layout import RunKey


@pytest.fixture
def costs(study):
    """Costs of the runs of a grid."""
    return lambda grid, throughput=None, **changes: run_costs(
        study(grid, data_root="data", **changes), throughput or {}
    )


CIFAR = {
    "protocol": "aclsline",
    "datasets": ["cifar10"],
    "backbones": ["resnet50"],
    "methods": ["ce"],
}


DRAWN = {"p": {"base": "aclsline", "val_draw": "seed"}}


def test_hours_of_a_run_by_hand(costs):
    (run,) = costs(CIFAR)
    assert run.key == RunKey("aclsline", "cifar10", "resnet50", "ce", 1)
    seconds = 7e-13 * 1_297_829_888
    images = 350 * (45_000 + 5_000 / 3)
    assert run.train_hours == pytest.approx(images * seconds / 3600)
    assert 3.8 < run.train_hours < 4.5  # MaC-Cal reports 3.8 on one A40
    # two checkpoints are scored on val and test
    assert run.predict_hours == pytest.approx(2 * 15_000 / 3 * seconds / 3600)


def test_a_processor_core_takes_fifty_times_as_long_as_a_gpu(costs):
    (gpu,), (core,) = costs(CIFAR), costs(CIFAR, device="cpu")
    assert core.train_hours == pytest.approx(50 * gpu.train_hours)
    assert core.predict_hours == pytest.approx(50 * gpu.predict_hours)


@pytest.mark.parametrize(
    ("method", "passes"),
    [("mit_l", 2), ("mit_a", 2), ("regmixup", 2), ("rankmixup_mrl", 2), ("rankmixup_mndcg", 4)],
)
def test_all_passes_of_a_step_are_counted(costs, method, passes):
    (run,) = costs({**CIFAR, "methods": [method]}, {"resnet50": 1000.0})
    assert run.train_hours == pytest.approx(350 * (passes * 45_000 + 5_000 / 3) / 1000 / 3600)


def test_the_epochs_of_a_search_are_counted(costs):
    few = {"few": {"base": "pcs", "combinations": 7}}
    runs = costs({**CIFAR, "methods": ["pcs", "few"]}, {"resnet50": 1000.0}, methods=few)
    for run, epochs in zip(runs, (350 + 100, 350 + 7), strict=True):
        assert run.train_hours == pytest.approx(epochs * (45_000 + 5_000 / 3) / 1000 / 3600)


def test_every_backbone_of_the_papers_lies_near_the_hours_that_they_report(costs):
    """Hours that MaC-Cal reports for one A40, Table 4."""
    hours = {"resnet50": 3.8, "wrn26_10": 5.8, "resnet110": 6.4}
    for run in costs({**CIFAR, "backbones": list(hours)}):
        reported = hours[run.key.backbone]
        assert reported < run.train_hours < 3 * reported


def test_a_stated_throughput_takes_the_place_of_the_estimate(costs):
    (run,) = costs(CIFAR, {"resnet50": 1000.0})
    assert run.train_hours == pytest.approx(350 * (45_000 + 5_000 / 3) / 1000 / 3600)
    assert run.predict_hours == pytest.approx(2 * 15_000 / 3 / 1000 / 3600)


def test_a_card_gives_speeds_with_a_graph_and_without(study):
    methods = ["ce", "mit_l", "tst"]  # of mit no CUDA graph is made
    made = study({**CIFAR, "protocol": "evening", "methods": methods}, data_root="data")
    plain, two_passes, second = run_costs(made, {}, card=CARDS["h100"])
    share, val = 33_000 / 42_764, 5_000 / 3
    assert plain.train_hours == pytest.approx(30 * (45_000 + val) / (share * 12_310) / 3600)
    assert two_passes.train_hours == pytest.approx(30 * (90_000 + val) / (share * 8_162) / 3600)
    assert second.train_hours == pytest.approx(5 * (15_000 + val) / (share * 12_310) / 3600)
    assert plain.predict_hours == pytest.approx(15_000 / 4_500 / 3600)


@pytest.mark.parametrize(
    ("change", "grid"),
    [
        ({"precision": "fp32"}, {}),
        ({"deterministic": True}, {}),
        ({"batch_size": 128}, {}),
        ({"gpus": 2, "cuda_graph": False}, {}),
        ({}, {"backbones": ["densenet121"]}),
        ({}, {"datasets": ["tiny_imagenet"]}),
    ],
)
def test_what_was_not_measured_on_a_card_is_estimated(study, change, grid):
    protocols = {"p": {"base": "evening", **change}}
    made = study({**CIFAR, "protocol": "p", **grid}, protocols=protocols, data_root="data")
    assert run_costs(made, {}, card=CARDS["h100"]) == run_costs(made, {})


def test_a_throughput_for_a_network_that_is_not_there_is_refused(costs, refuses):
    with refuses(
        ConfigError, "Unknown backbone 'resnet05' in --throughput", "did you mean 'resnet50'?"
    ):
        costs(CIFAR, {"resnet05": 1000.0})


def test_a_second_stage_costs_its_own_epochs_forth_only(costs):
    first, second = costs({**CIFAR, "methods": ["ce", "tst"]}, {"resnet50": 1000.0})
    assert second.key.method == "tst"
    assert second.train_hours == pytest.approx(40 * (45_000 / 3 + 5_000 / 3) / 1000 / 3600)
    # its last checkpoint only is scored
    assert second.predict_hours == pytest.approx(first.predict_hours / 2)


def test_disk_and_scoring_of_a_run_with_shifts_by_hand(costs):
    (run,) = costs({**CIFAR, "shifts": ["ood/svhn"]}, {"resnet50": 1000.0})
    weights = 23_520_842
    logits = (5_000 + 10_000 + 26_032) * 10
    features = 15_000 * 2048  # not those of the shifts
    assert run.bytes == 2 * 4 * (weights + logits + features)
    assert run.predict_hours == pytest.approx(2 * (15_000 + 26_032) / 3 / 1000 / 3600)


def test_jobs_downloads_and_prepared_images(study):
    grid = {**CIFAR, "seeds": [1, 2], "methods": ["ce", "tst"], "shifts": ["ood/svhn", "cifar10_c"]}
    made = study(grid, data_root="data")
    assert count_jobs(made) == {
        "prepare_data": 3,
        "train": 4,
        "predict": 4,
        "ensemble": 0,
        "import": 0,
        "calibrate": 4,
        "probe": 0,
        "aggregate and report": 5,
    }
    downloads = archive_bytes(made, downloaded=True)
    assert downloads["cifar-10-python.tar.gz"] == 170_498_071
    assert downloads["CIFAR-10-C.tar"] == 2_918_471_680
    assert archive_bytes(made, downloaded=False) == {}
    assert prepared_bytes(made, "cifar10") == 60_000 * 3 * 32 * 32
    assert count_jobs(study({**grid, "protocol": "p"}, data_root="data", protocols=DRAWN))[
        "prepare_data"
    ] == 3 + len(grid["seeds"])
    assert prepared_bytes(made, "cifar10_c") == 15 * 5 * 10_000 * 3 * 32 * 32


def test_a_first_stage_that_nobody_asked_about_is_trained_and_not_scored(study):
    made = study({**CIFAR, "methods": ["tst"]}, data_root="data")
    jobs = count_jobs(made)
    assert (jobs["train"], jobs["predict"]) == (2, 1)
    first = next(run for run in run_costs(made, {}) if run.key.method == "ce")
    assert first.predict_hours == 0
    assert first.bytes == 2 * 4 * 23_520_842


def test_variants_of_a_data_set_share_its_download_and_cost_by_the_crop(study):
    grid = {
        "protocol": "finegrained",
        "datasets": ["cub200", "large"],
        "backbones": ["imagenet_resnet101"],
        "methods": ["ce"],
    }
    datasets = {"large": {"base": "cub200", "size": 448}}
    made = study(grid, datasets=datasets, data_root="data")
    assert archive_bytes(made, downloaded=True) == {"CUB_200_2011.tgz": 1_150_585_339}
    assert prepared_bytes(made, "large") == 11_788 * 3 * 448 * 448
    small, large = run_costs(made, {})
    # both are cut to 224, for which the network's facts are
    assert small.train_hours == large.train_hours
    assert small.train_hours == pytest.approx(
        200 * (5_395 + 599 / 3) * 7e-13 * 7_801_405_440 / 3600
    )


def test_images_that_stay_encoded_count_as_their_files_do(study):
    grid = {
        "protocol": "published",
        "datasets": ["imagenet"],
        "backbones": ["imagenet_resnet50"],
        "methods": ["ce"],
        "shifts": ["imagenet_c"],
    }
    made = study(grid, data_root="data")
    assert prepared_bytes(made, "imagenet") == 6_744_924_160
    assert prepared_bytes(made, "imagenet_c") == 760_000 * 3 * 224 * 224 // 4
    assert prepared_bytes(made, "imagenet_v2") == 30_000 * 3 * 224 * 224


def test_embedded_data_is_not_downloaded(study):
    assert archive_bytes(study(), downloaded=True) == {}


def test_archives_without_size_and_those_that_the_user_provides(home):
    made = Study(read_configuration(home / "config/papers/smart/study.yaml"), home)
    corruptions = {f"{name}.tar" for name in ("noise", "blur", "weather", "digital", "extra")}
    downloads = archive_bytes(made, downloaded=True)
    assert {name for name, size in downloads.items() if size is None} == {
        "ImageNet-Sketch.zip",
        *corruptions,
    }
    assert archive_bytes(made, downloaded=False) == {
        "ILSVRC2012_img_val.tar": 6_744_924_160,
        "ILSVRC2012_devkit_t12.tar.gz": None,
    }


def test_corruptions_of_the_first_images_count_these_alone(study):
    few = {"base": "corruptions", "of": "cifar10", "images": 500}
    made = study({**CIFAR, "shifts": ["few"]}, data_root="data", datasets={"few": few})
    assert prepared_bytes(made, "few") == 9 * 5 * 500 * 3 * 32 * 32


def test_images_of_an_unknown_number_count_as_none(study):
    assert set(image_counts(study(), "imagenet_sketch").values()) == {0}


def test_a_model_of_timm_is_measured(costs):
    (run,) = costs({**CIFAR, "backbones": ["timm/resnet50"]})
    facts = backbone_info("timm/resnet50")
    # torchvision's table: 25.6 million weights with its head of 1,000 classes, 4.09 G multiply-adds
    assert facts["parameters"] == {10: 25_557_032 - 1000 * 2049 + 10 * 2049}
    assert facts["macs"] == pytest.approx(4.09e9, rel=0.01)
    assert run.bytes > 4 * facts["parameters"][10]


def test_disk_space_is_near_that_of_a_finished_run(costs):
    """Bytes of a run of the default study: model and logits of val, test, and two shifts."""
    run, *_ = costs({"shifts": ["digits_c", "ood/photos"]})
    measured = 308_424 + 20_662 + 49_315 + 1_224_328 + 37_225
    assert measured / 2 < run.bytes < 2 * measured


def test_features_of_training_images_take_space(costs):
    """Of 120 digits: 10 logits and 64 features."""
    shifts, made = {"shifts": ["ood/photos"]}, {}
    for export in ("all", "train"):
        protocols = {"p": {"base": "digits", "export_features": export}}
        made[export], *_ = costs({**shifts, "protocol": "p"}, protocols=protocols)
    assert made["train"].bytes - made["all"].bytes == 4 * 120 * (10 + 64)
    assert made["train"].predict_hours > made["all"].predict_hours


def test_a_network_counts_once_whichever_protocols_test_it(study):
    tests = {"bare": {"base": "aclsline", "export_features": False}}
    own = {**CIFAR, "protocol": "bare"}
    (alone,) = run_costs(study(own, protocols=tests, data_root="data"), {})
    assert alone.key.protocol == "bare"
    assert alone.train_hours > 0
    assert alone.bytes > 2 * 4 * 23_520_842
    both = study(own, CIFAR, protocols=tests, data_root="data")
    runs = {run.key.protocol: run for run in run_costs(both, {})}
    assert [runs["bare"].train_hours, runs["aclsline"].train_hours].count(0) == 1
