"""Protocols that train nothing: what they may say, and what a grid may ask of published weights."""

import copy

import pytest

from calgrid.configuration.plan import Plan
from calgrid.configuration.rules import RuleBook
from calgrid.configuration.runs import RunKey
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

KEY = RunKey("published", "imagenet", "imagenet_resnet50", "ce", 1)
GRID = {
    **dict(zip(("protocol", "datasets", "backbones", "methods"), ("published", *([v] for v in KEY[1:4])), strict=True))
}
DATASETS = ["imagenet", "imagenet_lt", "imagenet_sketch"]


@pytest.fixture
def study(make_config, home):
    def make(grid=None, **changes):
        return Study(make_config({**GRID, **(grid or {})}, **changes), home)

    return make


def test_data_sets_without_training_images_are_run_with_published_weights(study):
    grid = {"datasets": DATASETS, "backbones": ["imagenet_resnet50", "imagenet_vit_b32"], "shifts": ["imagenet_c"]}
    made = study({**grid, "fit_on": ["val", "same_shift"]})
    assert len(made.runs) == 6
    assert made.data_units() == ["imagenet", "imagenet_c", "imagenet_lt", "imagenet_sketch"]
    assert made.evaluations[KEY].families == ["imagenet_c"]
    assert made.evaluations[KEY].fit_on == ["val", "same_shift"]
    assert made.runs[KEY].checkpoints == ("last",)


def test_the_specification_of_such_a_run_names_no_loss_and_no_rate(study):
    spec = Plan(study()).train(KEY)
    assert spec["protocol"]["weights"] == "published"
    assert spec["protocol"]["epochs"] == 0
    assert "loss" not in spec
    assert not {"optimizer", "schedule", "augmentation"} & set(spec["protocol"])


def test_backbones_and_data_tell_their_runs_apart(study):
    plan = Plan(study({"datasets": DATASETS, "backbones": ["imagenet_resnet50", "imagenet_densenet121"]}))
    keys = list(plan.study.runs)
    assert (
        len({plan.train(key)["fingerprint"] for key in keys})
        == len({plan.predict(key)["fingerprint"] for key in keys})
        == 6
    )


@pytest.mark.parametrize("dataset", DATASETS)
def test_no_protocol_that_trains_can_have_them(study, refuses, dataset):
    parts = [f"grids[0].datasets: '{dataset}' has no training images", "protocol 'fcline' trains", "weights: published"]
    with refuses(ConfigError, *parts):
        study({"protocol": "fcline", "datasets": [dataset]})


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        ({"methods": ["ls"]}, ["grids[0].methods: protocol 'published' trains nothing", "not as 'ls'"]),
        ({"methods": ["tst"]}, ["trains nothing", "not as 'tst'"]),
        ({"seeds": [1, 2]}, ["grids[0].seeds: protocol 'published'", "name one seed, and several calibrator_seeds"]),
        ({"datasets": ["cifar10"], "backbones": ["resnet50"]}, ["no published weights of 'resnet50' are known"]),
        ({"backbones": ["timm/test_vit"]}, ["no published weights of 'timm/test_vit' are known"]),
        ({"datasets": ["tiny_imagenet"]}, ["'tiny_imagenet' has 200 classes", "'imagenet_resnet50' 1000", "fine-tune"]),
    ],
)
def test_what_no_published_weights_are_there_for_is_refused(study, refuses, tmp_path, grid, parts):
    with refuses(ConfigError, *parts):
        study(grid, data_root=str(tmp_path))


@pytest.mark.parametrize("extra", [{"epochs": 3}, {"pretrained": True}, {"checkpoints": ["best"]}])
def test_a_protocol_that_trains_nothing_does_not_say_how(study, refuses, extra):
    protocols = {"mine": {"base": "published", **extra}}
    with refuses(ConfigError, "protocol 'mine': weights: published trains nothing; remove " + next(iter(extra))):
        study(protocols=protocols)


def test_a_protocol_that_trains_must_say_how(home, make_config, refuses, tmp_path):
    with refuses(ConfigError, "protocol 'mine': the key 'epochs' is missing"):
        Study(make_config(protocols={"mine": {"base": "published", "weights": "trained"}}), home)
    with refuses(ConfigError, "protocol 'mine': weights must be one of trained, published", "'other'"):
        Study(make_config(protocols={"mine": {"base": "published", "weights": "other"}}), home)


def test_features_can_be_kept_or_left(study):
    made = study({"protocol": "mine"}, protocols={"mine": {"base": "published", "export_features": False}})
    assert made.runs[KEY._replace(protocol="mine")].protocol["export_features"] is False


def test_taking_weights_asks_for_no_gpu_and_little_memory(make_config, home, monkeypatch):
    config = make_config(copy.deepcopy(GRID), device="cuda")
    book = RuleBook(config, home, local=False)

    class Wildcards:
        protocol, dataset, backbone, method, seed = KEY

    trained = RuleBook(make_config({"protocol": "digits"}, device="cuda"), home, local=False)
    assert book.gpus == trained.needs.train_gpus(Digits) == 1
    assert book.needs.train_gpus(Wildcards) == 0
    assert book.needs.train_memory(Wildcards, 1) < 6000
    assert book.needs.train_minutes(Wildcards) == 60


class Digits:
    protocol, dataset, backbone, method, seed = "digits", "digits", "resnet8", "ce", 1


# checkpoints of torrvision/focal_calibration

LOSSES = ["ce", "brier", "mmce_w", "ls_005", "flsd53", "fl3"]
NETWORKS = ["resnet50", "resnet110", "densenet121", "wrn26_10"]


@pytest.fixture
def checkpoints(study, tmp_path):
    def make(**grid):
        block = {"protocol": "focal_calibration", "datasets": ["cifar10"], "backbones": ["resnet50"], **grid}
        return study(block, data_root=str(tmp_path), methods={"ls_005": {"base": "ls", "alpha": 0.05}})

    return make


def test_six_losses_of_eight_cells_have_a_file_each(checkpoints):
    study = checkpoints(datasets=["cifar10", "cifar100"], backbones=NETWORKS, methods=LOSSES)
    plan = Plan(study)
    files = {key: plan.train(key)["checkpoint"] for key in study.runs}
    assert len({file["url"] for file in files.values()}) == len(files) == 48
    key = RunKey("focal_calibration", "cifar10", "resnet50", "ce", 1)
    address = "https://www.robots.ox.ac.uk/~viveka/focal_calibration"
    assert files[key] == {
        "name": "resnet50_cross_entropy_350.model",
        "folder": "focal_calibration/CIFAR10",
        "url": f"{address}/CIFAR10/resnet50_cross_entropy_350.model",
    }
    names = {
        ("cifar10", "wrn26_10", "brier"): "wide_resnet_brier_score_550",
        ("cifar100", "wrn26_10", "brier"): "wide_resnet_brier_score_350",
        ("cifar100", "resnet110", "brier"): "resnet110_brier_score_430",
        ("cifar100", "densenet121", "mmce_w"): "densenet121_mmce_weighted_lamda_2.0_350",
        ("cifar100", "resnet50", "ls_005"): "resnet50_cross_entropy_smoothed_smoothing_0.05_350",
        ("cifar10", "resnet50", "flsd53"): "resnet50_focal_loss_adaptive_53_350",
        ("cifar10", "resnet50", "fl3"): "resnet50_focal_loss_gamma_3.0_350",
    }
    for (dataset, backbone, method), name in names.items():
        place = key._replace(dataset=dataset, backbone=backbone, method=method)
        assert files[place]["url"] == f"{address}/{dataset.upper()}/{name}.model"
    assert len({plan.train(key)["fingerprint"] for key in study.runs}) == 48


def test_cifar100_is_tested_with_the_constants_of_imagenet_as_their_code_does_and_nothing_else_is(checkpoints, study):
    made = checkpoints(datasets=["cifar10", "cifar100"], methods=["ce"])
    plan = Plan(made)
    of_ten, of_hundred = (plan.predict(key) for key in made.runs)
    assert "test_normalisation" not in of_ten
    assert of_hundred["test_normalisation"] == {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225]}
    others = [name for name in made.protocols.files if made.protocols.get(name, "here")["test_normalisation"]]
    assert others == ["focal_calibration"]


@pytest.mark.parametrize(
    ("names", "part"),
    [
        ({"cifar100": "imagenett"}, "did you mean 'imagenet'?"),
        ({"cifar1000": "imagenet"}, "did you mean 'cifar100'?"),
        ({"cifar100": "cifar100_c"}, "did you mean 'cifar100'?"),  # a shift family has those of its base
        ({"cifar100": "image_folder"}, "Unknown data set 'image_folder'"),  # that knows none
        ({"cifar100": [0.5, 0.5, 0.5]}, "test_normalisation.cifar100 must be of type string"),
    ],
)
@pytest.mark.parametrize("base", ["focal_calibration", "fcline"])
def test_constants_are_named_by_data_sets_that_have_some(study, refuses, base, names, part):
    with refuses(ConfigError, "protocol 'mine': test_normalisation", part):
        study(protocols={"mine": {"base": base, "test_normalisation": names}})


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        ({"methods": ["mbls"]}, ["no checkpoint of 'mbls' with 'resnet50' on 'cifar10'", "mmce_w lambda_=2.0"]),
        ({"methods": ["mixup"]}, ["no checkpoint of 'mixup'"]),
        ({"methods": ["tst"]}, ["no checkpoint of 'tst'"]),
        ({"datasets": ["svhn"]}, ["on 'svhn'"]),
        ({"backbones": ["resnet101"]}, ["with 'resnet101'"]),
        ({"seeds": [1, 2]}, ["takes weights as they are"]),
    ],
)
def test_what_they_did_not_publish_is_refused(checkpoints, refuses, grid, parts):
    with refuses(ConfigError, *parts):
        checkpoints(**grid)


def test_another_value_of_a_hyper_parameter_is_another_network(study, refuses, tmp_path):
    grid = {"protocol": "focal_calibration", "datasets": ["cifar10"], "backbones": ["resnet50"], "methods": ["strong"]}
    with refuses(ConfigError, "no checkpoint of 'strong'", "ls alpha=0.05"):
        study(grid, data_root=str(tmp_path), methods={"strong": {"base": "ls", "alpha": 0.1}})


def test_the_job_that_takes_a_checkpoint_is_told_the_data_root(make_config, home, tmp_path):
    grids = [
        {**GRID, "protocol": name, "datasets": ["cifar10"], "backbones": ["resnet50"], "seeds": [1]}
        for name in ("focal_calibration", "fcline")
    ]
    book = RuleBook(make_config(grids=grids, data_root=str(tmp_path)), home, local=True)

    class Taken(Digits):
        protocol, dataset, backbone = "focal_calibration", "cifar10", "resnet50"

    class Trained(Taken):
        protocol = "fcline"

    assert book.train_options(Taken) == f"--data-root {tmp_path}"
    assert book.train_options(Trained) == ""
