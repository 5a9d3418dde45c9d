"""Data sets that a configuration makes of its own files: facts, dependencies, refusals."""

import os

import numpy as np
import pytest
from tests.mistakes import cases

from calgrid.components import registry
from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.study.datasets import DatasetCatalog

FILES = {"train": "mine/train.parquet", "test": "mine/test.parquet"}
PARQUET = {"base": "image_parquet", "val_size": 30, **FILES}


@pytest.fixture
def root(tmp_path):
    (tmp_path / "mine").mkdir()
    for name in ("train", "test", "val"):
        (tmp_path / "mine" / f"{name}.parquet").write_bytes(name.encode() * 100)
    return tmp_path


@pytest.fixture
def study(study, root):
    def make(datasets, grid=None, **changes):
        grid = {"datasets": list(datasets), "methods": ["ce"], **(grid or {})}
        return study(grid, datasets=datasets, data_root=str(root), **changes)

    return make


# what is known of a configured data set


def test_corruptions_belong_to_the_data_set_that_they_are_made_of(study):
    made = study(
        {"mine": PARQUET, "mine_c": {"base": "corruptions", "of": "mine", "images": 5}},
        {"datasets": ["mine"], "shifts": ["mine_c"]},
    )
    assert made.image_sets() == ["mine", "mine_c"]
    assert made.datasets.base("mine_c") == "mine"
    spec = Plan(made).data("mine_c").spec["configured"]
    assert (spec["kind"], spec["info"]["base"]) == ("corruptions", "mine")
    assert spec["options"] == {"of": "mine", "images": 5}


def test_the_registered_data_set_that_a_shift_corrupts_is_prepared_too(study):
    made = study({"mine": {**PARQUET, "like": "cifar10"}}, {"shifts": ["cifar10_c"]})
    assert made.image_sets() == ["cifar10", "cifar10_c", "mine"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"of": "nothing"}, "Unknown dataset 'nothing' in datasets.mine_c.of"),
        ({"of": "digits_c"}, "datasets.mine_c.of: 'digits_c' is not a data set"),
        ({"of": "mine", "images": 0}, "images"),
        ({"of": "mine", "like": "cifar10"}, "datasets.mine_c.like does not apply to a shift"),
    ],
)
def test_corruptions_of_nothing_are_refused(study, given, message):
    with pytest.raises(ConfigError, match=message):
        study({"mine": PARQUET, "mine_c": {"base": "corruptions", **given}}, {"datasets": ["mine"]})


def test_facts_that_nobody_gives_are_left_to_the_preparation():
    info = DatasetCatalog({"mine": PARQUET}).describe("mine").info
    assert {info[name] for name in ("n_classes", "mean", "std", "image_shape")} == {None}
    assert info["families"] == ()


def test_like_takes_over_facts_and_families():
    original = registry.describe("dataset", "cifar10").info
    entry = {"base": "image_parquet", "like": "cifar10"}
    info = DatasetCatalog({"mine": entry}).describe("mine").info
    for fact in ("n_classes", "image_shape", "mean", "std", "families"):
        assert tuple(np.ravel(info[fact])) == tuple(np.ravel(original[fact]))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"split": "shuffled", "val_size": 5000, "split_seed": 1}),
        ({"val_size": 7, "split": "stratified"}, {"split": "stratified", "val_size": 7}),
        ({"mean": [0, 0, 0], "std": [1, 1, 1]}, {"mean": [0.0] * 3, "std": [1.0] * 3}),
        ({"val": "mine/val.parquet"}, {"val_size": None}),
    ],
)
def test_options_win_over_what_the_data_set_is_like(given, expected):
    catalog = DatasetCatalog({"mine": {"base": "image_parquet", "like": "cifar10", **given}})
    assert expected.items() <= catalog.options["mine"].items()


def test_a_long_tail_counts_its_images_and_is_like_the_balanced_data_set():
    ten, both = {"imbalance": 10}, {"val_profile": "lt"}
    base = {"base": "cifar100_lt"}
    catalog = DatasetCatalog({"ten": {**base, **ten}, "both": {**base, **both}})
    assert catalog.sizes("ten") == {"train": 17_614, "val": 5_000, "test": 10_000}
    assert catalog.sizes("both") == {"train": 9_754, "val": 1_051, "test": 10_000}
    assert "frequencies of the training images" in catalog.facts("both")["warning"]
    assert "warning" not in catalog.facts("ten")
    eps = registry.describe("loss", "las").resolve(dataset=catalog.defaults_of("ten"))["eps_head"]
    assert eps == registry.describe("loss", "las").resolve(dataset="cifar100")["eps_head"] == 0.4
    with pytest.raises(ConfigError, match=r"x: imbalance must be at least 1 and at most 450"):
        DatasetCatalog({"x": {"base": "cifar100_lt", "imbalance": 500}})


def test_hyper_parameters_are_those_of_the_data_set_that_it_is_like(study):
    spec = registry.describe("loss", "ls")
    assert spec.resolve() != spec.resolve(dataset="cifar100")
    for like, dataset in (({}, ""), ({"like": "cifar100"}, "cifar100")):
        (run,) = study({"mine": {**PARQUET, **like}}, {"methods": ["ls"]}).runs.values()
        assert run.method.loss_options == spec.resolve(dataset=dataset)


def test_overrides_match_it_by_its_own_name_only(study):
    def margin(name):
        overrides = [{"match": {"dataset": name}, "set": {"margin": 3.5}}]
        made = study(
            {"mine": {**PARQUET, "like": "cifar10"}}, {"methods": ["mbls"]}, overrides=overrides
        )
        return next(iter(made.runs.values())).method.loss_options["margin"]

    assert margin("mine") == 3.5
    assert margin("cifar10") != 3.5


def test_a_configured_set_can_be_the_out_of_distribution_set_of_another(study):
    datasets = {"mine": {**PARQUET, "families": ["ood/other"]}, "other": PARQUET}
    made = study(datasets, {"datasets": ["mine"], "shifts": ["ood/other"]})
    assert made.image_sets() == ["mine", "other"]
    (evaluation,) = made.evaluations.values()
    assert evaluation.families == ["ood/other"]


# what its fingerprint depends on


def fingerprint(study, **changes):
    return Plan(study({"mine": {**PARQUET, **changes}})).data("mine").fingerprint


@pytest.mark.parametrize(
    "change", [{"subset": 50}, {"val_size": 31}, {"image_size": 8}, {"label_column": "y"}], ids=str
)
def test_an_option_changes_the_fingerprint_of_the_data(study, change):
    assert fingerprint(study, **change) != fingerprint(study)


def test_a_further_family_that_no_grid_scores_changes_nothing(study):
    plans = [
        Plan(study({"mine": {**PARQUET, **more}})) for more in ({}, {"families": ["ood/photos"]})
    ]
    assert plans[0].manifest()["folders"] == plans[1].manifest()["folders"]


def test_the_content_of_a_source_counts_and_its_time_and_place_do_not(study, root):
    before = fingerprint(study)
    path = root / "mine" / "train.parquet"
    os.utime(path, (0, 0))
    assert fingerprint(study) == before
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    assert fingerprint(study) != before


def test_a_training_names_the_fingerprint_that_the_prepared_folder_must_have(study):
    plan = Plan(study({"mine": PARQUET}))
    (key,) = plan.study.runs
    assert plan.train(key).spec["data"] == plan.data("mine").fingerprint


def test_the_specification_for_the_preparation_is_json_and_complete(study):
    plan = Plan(study({"mine": PARQUET}, {"datasets": ["mine", "digits"]}))
    assert plan.data("digits").spec["configured"] is None
    spec = plan.data("mine").spec["configured"]
    assert (spec["image_set"], spec["kind"]) == ("mine", "image_parquet")
    assert set(spec["sources"]) == {*FILES.values()}
    given = {name: value for name, value in PARQUET.items() if name != "base"}
    assert spec["options"] == registry.describe("dataset", "image_parquet").resolve(given)


# refusals


REFUSED = cases(
    r"""
base: image_parqet
    Unknown dataset 'image_parqet' in datasets.mine.base ... 'image_parquet'?
base: digits
    datasets.mine.base: 'digits' has fixed files ... image_folder, image_parquet
like: photos
    datasets.mine.like: 'photos' is not a data set with training images
val_size: '30'
    datasets.mine: val_size must be a whole number or null, got '30'
val_size: null
    datasets.mine: give either 'val' or 'val_size'
val: mine/val.parquet
    datasets.mine: give either 'val' or 'val_size'
train: /etc/train.parquet
    datasets.mine.train must be a path below data_root, got '/etc/train.parquet'
test: ../test.parquet
    datasets.mine.test must be a path below data_root
test: "a\0b"
    datasets.mine.test must be a path below data_root, got 'a\x00b'
{test: t.parquet, test_size: 5}
    datasets.mine: give either 'test' or 'test_size'
test: mine/train.parquet
    'mine/train.parquet' is in train and in test ... test_size draws images
train: [3]
    datasets.mine.train must be a path below data_root, got 3
train: []
    datasets.mine.train must not be empty
mean: [0.5, 0.5, 0.5]
    datasets.mine: give both 'mean' and 'std', or neither
{mean: [0.5], std: [1, 1, 1]}
    datasets.mine.mean must be three numbers, one per channel, got [0.5]
split: random
    datasets.mine: split must be one of ['stratified', 'shuffled'], got 'random'
resize: 40
    datasets.mine.resize must be at least image_size
{resize: 30, image_size: 32}
    datasets.mine.resize must be at least image_size
families: [ood/foto]
    Unknown dataset 'foto' in datasets.mine.families ... did you mean 'photos'?
families: [photos]
    datasets.mine.families: 'photos' is wrong; data sets need the prefix 'ood/'
families: [ood/digits_c]
    datasets.mine.families: 'ood/digits_c' is wrong
families: [ood/mine]
    datasets.mine.families: 'mine' cannot be its own out-of-distribution set
train: mine/trian.parquet
    datasets.mine.train: the file or folder ... trian.parquet' does not exist
test: mine/tset.parquet
    datasets.mine.test: the file or folder ... or give test_size, a number of training rows
"""
)


def test_two_ways_to_write_a_path_are_one_data_set(study):
    definitions = [
        study({"mine": {**PARQUET, "train": path}}).datasets.definition("mine")
        for path in (PARQUET["train"], f"./{PARQUET['train']}/", [PARQUET["train"]])
    ]
    assert definitions[0] == definitions[1]
    assert definitions[0]["sources"] == definitions[2]["sources"]


@pytest.mark.parametrize(
    ("change", "parts"), REFUSED, ids=[str(change)[:60] for change, _ in REFUSED]
)
def test_mistakes_are_refused_before_any_job(study, refuses, change, parts):
    with refuses(ConfigError, *parts):
        study({"mine": {**PARQUET, **change}})


@pytest.mark.parametrize(
    ("name", "wanted", "parts"),
    [
        ("digits", "digits", "datasets.digits: 'digits' is a registered data set; choose another"),
        ("mine", "image_parquet", "grids[0].datasets: 'image_parquet' is a kind ... 'datasets'"),
        ("mine", "mien", "Unknown dataset 'mien' in grids[0].datasets: did you mean 'mine'?"),
    ],
)
def test_names_that_do_not_fit_are_refused(study, refuses, name, wanted, parts):
    with refuses(ConfigError, parts):
        study({name: PARQUET}, {"datasets": [wanted]})


def test_sources_of_sets_that_no_grid_names_may_be_missing(study):
    made = study(
        {"mine": PARQUET, "later": {**PARQUET, "train": "not/yet.parquet"}}, {"datasets": ["mine"]}
    )
    assert made.image_sets() == ["mine"]
