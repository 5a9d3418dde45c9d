"""Protocols: files and variants, the published lines, weights that are not trained here."""

from pathlib import Path
from types import MappingProxyType

import pytest
from tests.mistakes import cases

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.storage.records import RunKey
from calgrid.study.focal_calibration import NETWORKS
from calgrid.study.protocols import ProtocolCatalog, for_stage, merge, training_options
from calgrid.study.study import Study
from calgrid.training.protocol import (
    Augmentation,
    Lookahead,
    Schedule,
    TrainingProtocol,
)
from calgrid.training.schedule import learning_rate

LINES = ("aclsline", "fcline")
CONSTANT = Schedule(name="constant")


@pytest.fixture(scope="module")
def shipped(home):
    return ProtocolCatalog(home, {})


@pytest.fixture(params=LINES)
def protocol(request, shipped):
    return shipped.get(request.param, "the test")


def differing(protocol, other):
    """Keys in which two protocols differ."""
    return {name for name, value in protocol if getattr(other, name) != value}


def test_second_stages_train_40_more_epochs_at_a_constant_rate(protocol):
    second = for_stage(protocol, second=True)
    assert (second.schedule, second.optimizer.lr) == (CONSTANT, 0.1)
    assert (second.epochs, second.checkpoints, second.reduction) == (40, ["last"], "mean")
    for name in ("batch_size", "optimizer", "clip_grad_norm", "augmentation"):
        assert getattr(second, name) == getattr(protocol, name)


def test_fine_grained_protocols_differ_in_network_optimiser_and_crop(shipped):
    cnn, vit = (shipped.get(name, "the test") for name in ("finegrained", "finegrained_vit"))
    assert (cnn.crop_size, vit.crop_size, cnn.pretrained) == (224, 384, True)
    assert differing(cnn, vit) == {"description", "crop_size", "optimizer"}


def test_the_protocol_for_an_evening_lets_validation_choose_nothing(shipped):
    protocol = shipped.get("evening", "the test")
    assert protocol.checkpoints == for_stage(protocol, second=True).checkpoints == ["last"]
    assert protocol.epochs < shipped.get("aclsline", "the test").epochs / 10
    assert learning_rate(protocol, 29, 351, 352) < 1e-3 * protocol.optimizer.lr


@pytest.mark.parametrize("line", LINES)
def test_tiny_imagenet_differs_in_length_and_batch_only(shipped, line):
    """Numbers of the protocols are compared with `hyperparameters.yaml` of the papers elsewhere."""
    tiny, cifar = (shipped.get(name, "the test") for name in (f"{line}_tiny", line))
    assert cifar.augmentation == Augmentation(crop_padding=4, flip=True)
    assert (tiny.epochs, tiny.batch_size, tiny.schedule.milestones) == (100, 64, [40, 60])
    others = {"description", "epochs", "batch_size", "drop_last", "schedule", "second_stage"}
    assert differing(tiny, cifar) <= others
    second = for_stage(tiny, second=True)
    assert (second.epochs, second.batch_size, second.checkpoints) == (40, 128, ["last"])
    assert second.schedule == CONSTANT


@pytest.mark.parametrize(
    "path", sorted(Path(__file__).parents[2].glob("config/protocols/*.yaml")), ids=lambda p: p.stem
)
def test_every_protocol_of_the_repository_is_valid(shipped, path):
    protocol = shipped.get(path.stem, "here")
    assert isinstance(protocol, TrainingProtocol) == (protocol.weights == "trained")
    # those of papers train in full precision
    own = ["cifar10_cpu", "evening", "few_images", "imagenet", "photographs", "photographs_fit"]
    if isinstance(protocol, TrainingProtocol):
        assert protocol.precision == ("bf16" if path.stem in own else "fp32")
    assert len(protocol.description) > 20
    assert "description" not in training_options(protocol)  # words never change a fingerprint


class TestProtocols:
    @pytest.fixture
    def get(self, home):
        return lambda **change: ProtocolCatalog(home, {"p": {"base": "digits", **change}}).get(
            "p", "here"
        )

    def test_without_a_block_of_its_own_the_second_stage_is_as_the_first(self, get):
        protocol = get().model_copy(update={"second_stage": None})
        assert for_stage(protocol, second=True) == for_stage(protocol, second=False) == protocol

    def test_the_second_stage_changes_what_its_block_names(self, get):
        protocol = get(
            optimizer={"lr": 0.4, "weight_decay": 5e-4},
            second_stage={
                "epochs": 9,
                "batch_size": 7,
                "optimizer": {"lr": 0.01},
                "schedule": {"name": "constant"},
            },
        )
        first, second = for_stage(protocol, second=False), for_stage(protocol, second=True)
        assert differing(first, second) == {"epochs", "batch_size", "optimizer", "schedule"}
        assert (second.epochs, second.batch_size) == (9, 7)
        # keys that the block leaves out stay, also those for which the model has a default
        assert second.optimizer == first.optimizer.model_copy(update={"lr": 0.01})
        # but a schedule is replaced as a whole: milestones of the first stage mean nothing in the
        # second
        assert second.schedule == CONSTANT
        assert first.second_stage is second.second_stage is None

    def test_no_weights_are_averaged_over_the_masks_of_a_second_stage(self, get):
        protocol = get(lookahead={})
        assert for_stage(protocol, second=False).lookahead == Lookahead()
        assert for_stage(protocol, second=True).lookahead is None

    def test_unused_keys_are_no_part_of_a_training(self, get):
        plain = training_options(get())
        assert plain["augmentation"].keys() == {
            *("crop_padding", "padding_mode", "flip", "resized_crop")
        }
        assert training_options(get(ema={"decay": 0.5}, swa={"start": 0.5})) == plain
        averaged = get(checkpoints=["ema"], ema={"decay": 0.5})
        assert training_options(averaged)["ema"] == {"decay": 0.5}
        assert "swa" not in training_options(averaged)
        second = for_stage(get(ema={"decay": 0.5}, second_stage={"checkpoints": ["ema"]}), True)
        assert training_options(second)["ema"] == {"decay": 0.5}
        operations = training_options(get(augmentation={"augmix": {}}))["augmentation"]
        assert operations["augmix"]["severity"] == 3

    def test_a_named_schedule_replaces_that_of_the_base_and_its_other_keys_are_merged(self, get):
        base = get().schedule
        assert get(schedule={"name": "constant"}).schedule == CONSTANT
        assert get(schedule={"milestones": [5]}).schedule == base.model_copy(
            update={"milestones": [5]}
        )


def test_merging_is_level_by_level_and_leaves_its_arguments_alone():
    base, change = {"a": {"x": 1, "y": 2}, "b": [1]}, {"a": {"y": 3}, "b": [2], "c": {"z": 4}}
    assert merge(base, change) == {"a": {"x": 1, "y": 3}, "b": [2], "c": {"z": 4}}
    assert base == {"a": {"x": 1, "y": 2}, "b": [1]}


KEY = RunKey("published", "imagenet", "imagenet_resnet50", "ce", 1)
GRID = {"protocol": "published", "datasets": ["imagenet"], "backbones": ["imagenet_resnet50"]}
GRID |= {"methods": ["ce"]}


@pytest.fixture
def study(study):
    return lambda grid=None, **changes: study({**GRID, **(grid or {})}, **changes)


def test_data_sets_without_training_images_are_run_with_published_weights(study):
    datasets = ["imagenet", "imagenet_lt", "imagenet_sketch"]
    grid = {"datasets": datasets, "backbones": ["imagenet_resnet50", "imagenet_vit_b32"]}
    made = study({**grid, "shifts": ["imagenet_c"], "fit_on": ["val", "same_shift"]})
    assert len(made.runs) == 6
    assert made.image_sets() == ["imagenet", "imagenet_c", "imagenet_lt", "imagenet_sketch"]
    assert made.evaluations[KEY].families == ["imagenet_c"]
    assert made.evaluations[KEY].fit_on == ["val", "same_shift"]
    assert made.runs[KEY].checkpoints == ("last",)


def test_the_specification_of_such_a_run_names_no_loss_and_no_rate(study):
    made = study(protocols={"published_light": {"base": "published", "export_features": False}})
    assert made.protocols.get("published_light", "here").export_features is False
    spec = Plan(made).train(KEY).spec
    assert spec["protocol"]["weights"] == "published"
    assert "loss" not in spec
    assert not {"epochs", "optimizer", "schedule", "augmentation"} & set(spec["protocol"])


THEIRS = {"protocol": "focal_calibration", "datasets": ["cifar10"], "backbones": ["resnet50"]}


@pytest.mark.parametrize(
    ("changes", "parts"),
    cases(
        r"""
protocol: fcline
    grids[0].datasets: 'imagenet' has no training images ... 'fcline' trains
methods: [tst]
    grids[0].methods: protocol 'published' ... to the method 'ce'; remove 'tst'
seeds: [1, 2]
    grids[0].seeds: protocol 'published' ... one seed, and several calibrator_seeds
{datasets: [cifar10], backbones: [resnet50]}
    published weights, and 'resnet50' has none
datasets: [tiny_imagenet]
    has 200 classes ... 'imagenet_resnet50' have 1000 ... fine-tune
protocols: {mine: {base: published, pretrained: true, epochs: 3}}
    nothing is trained; remove epochs, pretrained
protocols: {mine: {base: published, weights: trained}}
    protocol 'mine': the key 'checkpoints' is missing
protocols: {mine: {base: published, weights: other}}
    weights must be one of trained, published
protocols: {mine: {base: published, weights: file}}
    give weights: file and weights_file together
protocols: {mine: {base: published, weights: published, weights_file: a.pt}}
    give weights: file and weights_file together
protocols: {mine: {base: published, weights: file, weights_file: '{net}.pt'}}
    weights_file '{net}.pt' has other braces than {dataset}
{weights_file: no.pt}
    grids[0]: weights_file: the file ... no.pt' does not exist
{weights_file: a.pt, seeds: [1, 2]}
    grids[0].seeds: weights_file 'a.pt' ... is one file ... write {seed} into its name
{weights_file: a.pt, methods: [tst]}
    trains nothing, so the second stage 'tst'
protocols: {mine: {base: fcline, test_normalisation: {cifar10_: imagenet}}}
    'mine': test_normalisation: did you mean 'cifar10'?
protocols: {mine: {base: fcline, test_normalisation: {cifar100: cifar100_c}}}
    did you mean 'cifar100'?
protocols: {mine: {base: fcline, test_normalisation: {cifar100: image_folder}}}
    Unknown data set 'image_folder'
protocols: {mine: {base: fcline, test_normalisation: {cifar100: [0.5, 0.5, 0.5]}}}
    test_normalisation.cifar100 must be of type string
{protocol: focal_calibration, datasets: [cifar10], backbones: [resnet50], methods: [mbls]}
    no checkpoint of 'mbls' with 'resnet50' on 'cifar10' ... lambda_=2.0
{protocol: focal_calibration, datasets: [cifar10], backbones: [resnet50], methods: [mixup]}
    no checkpoint of 'mixup'
{protocol: focal_calibration, datasets: [cifar10], backbones: [resnet50], methods: [tst]}
    no checkpoint of 'tst'
{protocol: focal_calibration, datasets: [cifar100], backbones: [resnet50], methods: [ls]}
    no checkpoint of 'ls' ... ls alpha=0.05
{protocol: focal_calibration, datasets: [svhn], backbones: [resnet50]}
    on 'svhn'
{protocol: focal_calibration, datasets: [cifar10], backbones: [resnet101]}
    with 'resnet101'
"""
    ),
)
def test_what_fits_no_weights_or_constants_is_refused(study, refuses, tmp_path, changes, parts):
    (tmp_path / "a.pt").touch()
    grid = {} if "protocols" in changes else dict(changes)
    protocols = changes.get("protocols", {})
    if name := grid.pop("weights_file", ""):
        grid |= {"protocol": "own", "datasets": ["digits"], "backbones": ["resnet8"]}
        protocols = {"own": {"base": "published", "weights": "file", "weights_file": name}}
    with refuses(ConfigError, *parts):
        study(grid, data_root=str(tmp_path), protocols=protocols)


@pytest.fixture
def checkpoints(study, tmp_path):
    def make(**grid):
        methods = {"ls_005": {"base": "ls", "alpha": 0.05}}
        return study({**THEIRS, **grid}, data_root=str(tmp_path), methods=methods)

    return make


def test_six_losses_of_eight_cells_have_a_file_each(checkpoints):
    methods, networks = ["ce", "brier", "mmce_w", "ls_005", "flsd53", "fl3"], [*NETWORKS]
    plan = Plan(checkpoints(datasets=["cifar10", "cifar100"], backbones=networks, methods=methods))
    files = {key: plan.train(key).spec["checkpoint"] for key in plan.study.runs}
    assert len({file["url"] for file in files.values()}) == len(files) == 48
    address = "https://www.robots.ox.ac.uk/~viveka/focal_calibration"
    names = {
        ("cifar10", "resnet50", "ce"): "resnet50_cross_entropy_350",
        ("cifar10", "wrn26_10", "brier"): "wide_resnet_brier_score_550",
        ("cifar100", "wrn26_10", "brier"): "wide_resnet_brier_score_350",
        ("cifar100", "resnet110", "brier"): "resnet110_brier_score_430",
        ("cifar100", "densenet121", "mmce_w"): "densenet121_mmce_weighted_lamda_2.0_350",
        ("cifar100", "resnet50", "ls_005"): "resnet50_cross_entropy_smoothed_smoothing_0.05_350",
        ("cifar10", "resnet50", "flsd53"): "resnet50_focal_loss_adaptive_53_350",
        ("cifar10", "resnet50", "fl3"): "resnet50_focal_loss_gamma_3.0_350",
    }
    for (dataset, backbone, method), name in names.items():
        folder = dataset.upper()
        file = files[RunKey("focal_calibration", dataset, backbone, method, 1)]
        expected = {"name": f"{name}.model", "folder": f"focal_calibration/{folder}"}
        assert file == {**expected, "url": f"{address}/{folder}/{name}.model"}


class TestSharedTraining:
    """Protocols that differ only in how they test have one training."""

    PROTOCOLS = MappingProxyType(
        {
            "plain": {"base": "digits"},
            "tested": {"base": "digits", "test_normalisation": {"digits": "imagenet"}},
            "longer": {"base": "digits", "epochs": 61},
        }
    )

    @pytest.fixture
    def make(self, make_config, home):
        def run(methods, **options):
            (grid,) = make_config({"methods": methods})["grids"]
            grids = [{**grid, "protocol": name} for name in self.PROTOCOLS]
            config = {"study": "small", "grids": grids, "protocols": dict(self.PROTOCOLS)}
            return Study({**config, **options}, home)

        return run

    def test_they_have_its_folder_and_predictions_of_their_own(self, make):
        made = make(["ce", "tst"])
        plan = Plan(made)
        keys = [key for key in made.evaluations if key.protocol != "longer"]
        for method in ("ce", "tst"):
            alike = [key for key in keys if key.method == method]
            (folder,) = {plan.train(key).folder for key in alike}
            assert "/digits/digits/resnet8/" in folder
            assert len({plan.predicted(key).folder for key in alike}) == 2
        trained = [job.about.split("/")[0] for job in plan.jobs if job.kind == "train"]
        assert sorted(trained) == ["digits", "digits", "longer", "longer"]

    def test_an_override_for_one_of_them_keeps_them_apart(self, make):
        override = {"match": {"protocol": "tested"}, "set": {"alpha": 0.2}}
        made = make(["ls"], overrides=[override])
        (key,) = [key for key in made.evaluations if key.protocol == "tested"]
        assert made.training[key] == key
        assert made.trained[key].method.loss_options["alpha"] == 0.2


def test_cifar100_alone_is_tested_with_the_constants_of_imagenet_as_in_their_code(checkpoints):
    made = checkpoints(datasets=["cifar10", "cifar100"], methods=["ce"])
    plan = Plan(made)
    constants = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
    of_ten, of_hundred = (plan.predict(key).spec["test_normalisation"] for key in made.runs)
    assert (of_ten, of_hundred) == ({}, {"cifar100": constants})
    others = [
        name for name in made.protocols.files if made.protocols.get(name, "here").test_normalisation
    ]
    assert others == ["focal_calibration"]


def test_random_parts_of_images_need_their_files(study, refuses):
    grid = {"protocol": "imagenet", "datasets": ["digits"], "backbones": ["resnet8"]}
    with refuses(ConfigError, "grids[0].datasets: protocol 'imagenet'", "'digits' is stored"):
        study(grid)
    assert len(study({"protocol": "imagenet", "datasets": ["imagenet_1k"]}).trained) == 1
