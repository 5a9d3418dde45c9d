"""Every mistake in a configuration is refused before anything runs, in one sentence: where it is, how to mend it."""

import contextlib
import dataclasses
import json
from types import MappingProxyType

import pytest

from calgrid import registry
from calgrid.configuration import rules
from calgrid.configuration.rules import RuleBook
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

GRIDS = [
    ({"methods": ["mblss"]}, ["Unknown method 'mblss' in grids[0].methods", "did you mean 'mbls'?"]),
    ({"calibrators": ["smrt"]}, ["Unknown calibrator 'smrt' in grids[0].calibrators", "did you mean 'smart'?"]),
    ({"calibrators": ["TS"]}, ["Unknown calibrator 'TS' in grids[0].calibrators", "did you mean 'ts'?"]),
    ({"methods": ["CE"]}, ["Unknown method 'CE' in grids[0].methods", "did you mean 'ce'?"]),
    ({"methods": ["ce\n"]}, [r"Unknown method 'ce\n' in grids[0].methods"]),
    ({"datasets": ["digit"]}, ["Unknown dataset 'digit' in grids[0].datasets", "did you mean 'digits'?"]),
    ({"backbones": ["resnet9"]}, ["Unknown backbone 'resnet9' in grids[0].backbones", "did you mean 'resnet"]),
    ({"protocol": "digts"}, ["Unknown protocol 'digts' in grids[0].protocol", "did you mean 'digits'?"]),
    ({"shifts": ["digits_b"]}, ["Unknown shift 'digits_b' in grids[0].shifts", "did you mean 'digits_c'?"]),
    ({"shifts": ["ood/foto"]}, ["Unknown shift 'ood/foto' in grids[0].shifts", "did you mean 'ood/photos'?"]),
    ({"shifts": ["snow"]}, ["Unknown shift 'snow' in grids[0].shifts", "valid: digits_c, "]),
    ({"datasets": ["photos"]}, ["grids[0].datasets: 'photos' can only be tested on", "name it in shifts"]),
    ({"datasets": ["digits_c"]}, ["grids[0].datasets: 'digits_c' can only be tested on", "name it in shifts"]),
    ({"fit_on": ["same_shift"]}, ["grids[0].fit_on: 'same_shift' needs a shift family in 'shifts'", "remove it"]),
    ({"fit_on": ["same_shift"], "shifts": ["ood/photos"]}, ["grids[0].fit_on: 'same_shift' needs a shift family"]),
    ({"seeds": []}, ["grids[0].seeds must not be empty"]),
    ({"methods": []}, ["grids[0].methods must not be empty"]),
    ({"calibrators": []}, ["grids[0].calibrators must not be empty"]),
    ({"seeds": [1, 2, 1]}, ["grids[0].seeds holds 1 twice"]),
    ({"methods": ["ce", "ce"]}, ["grids[0].methods holds 'ce' twice"]),
    ({"methods": "ce"}, ["grids[0].methods must be of type array, got 'ce' (write [ce])"]),
    ({"seeds": [1.5]}, ["grids[0].seeds[0] must be of type integer, got 1.5"]),
    ({"seeds": [-1]}, ["grids[0].seeds[0]", "-1 is less than the minimum of 0"]),
    ({"seeds": ["1"]}, ["grids[0].seeds[0] must be of type integer, got '1'", "without quotes and in digits alone"]),
    ({"seeds": [1.0]}, ["grids[0].seeds[0] must be of type integer, got 1.0 (write 1)"]),
    ({"calibrator_seeds": [2.0]}, ["grids[0].calibrator_seeds[0] must be of type integer, got 2.0 (write 2)"]),
    ({"protocl": "digits"}, ["Unknown key 'protocl'", "grids[0]", "did you mean 'protocol'?"]),
    ({"seeds": None}, ["grids[0].seeds must be of type array, got None"]),
    ({"methods": ["tst+mblss"]}, ["Unknown method 'mblss' in 'tst+mblss' in grids[0].methods", "'mbls'?"]),
    ({"methods": ["tst+"]}, ["Unknown method '' in 'tst+'"]),
    ({"methods": ["tst+mbls+ls"]}, ["'mbls+ls' in 'tst+mbls+ls' in grids[0].methods", "'mbls' is a loss, nothing"]),
    ({"methods": ["tst+tst"]}, ["'tst+tst' in grids[0].methods", "itself a second stage", "use a one-stage method"]),
    ({"methods": ["ce+mbls"]}, ["'ce+mbls' in grids[0].methods", "'ce' is a loss"]),
    ({"methods": ["tst+ce"]}, ["'tst+ce' in grids[0].methods: write 'tst'"]),
    ({"methods": ["mixup+ce"]}, ["'mixup+ce' in grids[0].methods: write 'mixup'"]),
    ({"methods": ["mixup+tst"]}, ["'mixup+tst' in grids[0].methods: 'tst' is no loss", "stands a loss"]),
    (
        {"methods": ["mixup+fl3"]},
        ["'mixup' mixes labels", "needs hard ones", "it can train: acls, brier, cals_alm, ce"],
    ),
    ({"methods": ["mit_l+adafocal"]}, ["'mit_l' computes its loss twice a step", "it can train: acls, brier, ce"]),
    ({"methods": ["maccal+mixup+fl3"]}, ["'mixup+fl3' in 'maccal+mixup+fl3' in grids[0].methods", "needs hard ones"]),
    ({"methods": ["maccal+balcal"]}, ["'maccal+balcal'", "'balcal' trains more than a linear head"]),
    ({"methods": ["maccal+tst"]}, ["'maccal+tst'", "itself a second stage"]),
    ({"methods": ["standard"]}, ["Unknown method 'standard' in grids[0].methods"]),
]
TOP_LEVEL = [
    ({"sudy": "x"}, ["Unknown key 'sudy' in configuration", "did you mean 'study'?"]),
    ({"study": "runs"}, ["study must not be 'runs'"]),
    ({"study": "logs"}, ["study must not be 'logs'"]),
    ({"study": "benchmarks"}, ["study must not be 'benchmarks'"]),
    ({"study": "a\n"}, [r"study: 'a\n' is no valid name"]),
    ({"study": "a/b"}, ["study: 'a/b' is no valid name"]),
    ({"device": "gpu"}, ["device must be one of auto, cpu, cuda, got 'gpu'"]),
    ({"results": "{x}"}, ["results: the path must not hold '{'"]),
    ({"results": "~/x"}, ["results: '~' is not replaced", "write the path in full"]),
    ({"data_root": "~/x"}, ["data_root: '~' is not replaced", "write the path in full"]),
    ({"results": ""}, ["results", "non-empty"]),
    ({"grids": []}, ["grids must not be empty"]),
    ({"grids": {}}, ["grids must be of type array"]),
    ({"data_root": "no/such/folder"}, ["data_root: the folder 'no/such/folder' does not exist", "correct the path"]),
    ({"published": ["no.csv"]}, ["published[0]: the file '", "no.csv' does not exist"]),
    (
        {"published": ["/etc/passwd"]},
        ["published[0]: '/etc/passwd' is no CSV file of published numbers", "paper, table"],
    ),
    ({"study": "x" * 300}, ["study must have at most 100 characters, got 300"]),
    ({"methods": {"x" * 300: {"base": "mbls"}}}, ["methods must have at most 60 characters, got 300"]),
    ({"results": "/etc/passwd"}, ["results: '/etc/passwd' is a file; give a folder"]),
    ({"results": "/etc/passwd/mine"}, ["results: '/etc/passwd' is a file; give a folder"]),
    ({"results": "a\0b"}, ["results: 'a\\x00b' holds a character that no path can have"]),
    ({"results": "a\ud800b"}, ["results: 'a\\ud800b' holds a character that no path can have"]),
    ({"data_root": "/etc/passwd"}, ["data_root: '/etc/passwd' is a file; give a folder"]),
    ({"statistics": {"bins": 1}}, ["statistics.bins", "less than the minimum of 2"]),
    ({"statistics": {"bins": 15.0}}, ["statistics.bins must be of type integer, got 15.0 (write 15)"]),
    ({"statistics": {"level": float("nan")}}, ["statistics.level must be a finite number, got nan"]),
    ({"statistics": {"level": 1}}, ["statistics.level", "maximum of 1"]),
    ({"statistics": {"bootstap": 5}}, ["Unknown key 'bootstap'", "statistics", "did you mean 'bootstrap'?"]),
    ({"statistics": {"baseline": "mbl"}}, ["Unknown method 'mbl' in statistics.baseline", "did you mean 'mbls'?"]),
    (
        {"statistics": {"comparisons": [{"question": "Does it help?", "method": "mbl", "against": "ce"}]}},
        ["Unknown method 'mbl' in statistics.comparisons[0].method", "did you mean 'mbls'?"],
    ),
    (
        {"statistics": {"comparisons": [{"question": "Does it help?", "method": "mbls", "against": "ls"}]}},
        ["Unknown method 'ls' in statistics.comparisons[0].against"],
    ),
    (
        {"statistics": {"comparisons": [{"question": "Does it help?", "method": "ce", "against": "ce"}]}},
        ["statistics.comparisons[0]: 'ce' is compared with itself"],
    ),
    (
        {"statistics": {"comparisons": [{"method": "ce", "against": "ce"}]}},
        ["statistics.comparisons[0]: the key 'question' is missing"],
    ),
    # variants of methods
    ({"methods": {"mine": {"base": "mbsl"}}}, ["Unknown method 'mbsl' in methods.mine.base", "'mbls'?"]),
    ({"methods": {"mine": {"base": "mbls", "margn": 1}}}, ["hyper-parameter 'margn' in methods.mine", "'margin'?"]),
    ({"methods": {"mine": {"base": "mbls", "margin": "x"}}}, ["methods.mine: margin must be float, got 'x'"]),
    ({"methods": {"mine": {"base": "mbls", "margin": "1e-3"}}}, ["methods.mine: margin must be float", "1.0e-3"]),
    (
        {"methods": {"mine": {"base": "mbls", "margin": float("nan")}}},
        ["methods.mine: margin must be a finite number, got nan"],
    ),
    (
        {"methods": {"mine": {"base": "mbls", "margin": 10**400}}},
        ["methods.mine: margin must be a finite number, got one beyond"],
    ),
    ({"methods": {"mine": {"margin": 1}}}, ["methods.mine: the key 'base' is missing"]),
    ({"methods": {"mbls": {"base": "mbls"}}}, ["methods.mbls: 'mbls' is a registered method", "another name"]),
    ({"methods": {1: {"base": "mbls"}}}, ["methods: 1 is no valid name", "starts with a letter"]),
    ({"methods": {"a\n": {"base": "mbls"}}}, [r"methods: 'a\n' is no valid name"]),
    ({"methods": {"My+Own": {"base": "mbls"}}}, ["methods: 'My+Own' is no valid name"]),
    # variants of calibrators
    ({"calibrators": {"mine": {"base": "tss"}}}, ["Unknown calibrator 'tss' in calibrators.mine.base", "'ts'?"]),
    ({"calibrators": {"mine": {"base": "smart", "sgma": 1}}}, ["'sgma' in calibrators.mine", "did you mean 'sigma'?"]),
    ({"calibrators": {"mine": {"base": "smart", "seed": 1}}}, ["calibrators.mine", "calibrator_seeds"]),
    ({"calibrators": {"ts": {"base": "ts"}}}, ["calibrators.ts: 'ts' is a registered calibrator", "another name"]),
    # variants of protocols
    ({"protocols": {"p": {"base": "digts"}}}, ["Unknown protocol 'digts' in protocols.p.base", "'digits'?"]),
    ({"protocols": {"p": {"base": "p"}}}, ["Unknown protocol 'p' in protocols.p.base: valid: aclsline"]),
    ({"protocols": {"p": {"base": "digits", "epoch": 3}}}, ["Unknown key 'epoch' in protocol 'p'", "'epochs'?"]),
    ({"protocols": {"p": {"base": "digits", "epochs": 0}}}, ["protocol 'p': epochs", "minimum of 1"]),
    ({"protocols": {"p": {"base": "digits", "epochs": 2.0}}}, ["protocol 'p': epochs", "got 2.0 (write 2)"]),
    ({"protocols": {"p": {"base": "digits", "batch_size": 128.0}}}, ["protocol 'p': batch_size", "(write 128)"]),
    (
        {"protocols": {"p": {"base": "digits", "optimizer": {"lr": float("inf")}}}},
        ["protocol 'p': optimizer.lr must be a finite number, got inf"],
    ),
    (
        {"protocols": {"p": {"base": "digits", "epochs": 30, "schedule": {"milestones": [30]}}}},
        ["protocol 'p': milestone 30 is not before the last of 30 epochs", "train longer"],
    ),
    (
        {"protocols": {"p": {"base": "digits", "schedule": {"milestones": [50, 40]}}}},
        ["protocol 'p': schedule.milestones must ascend, got [50, 40]"],
    ),
    (
        {"protocols": {"p": {"base": "digits", "schedule": {"warmup_epochs": 1000}}}},
        ["protocol 'p': schedule.warmup_epochs must be fewer than the 60 epochs, got 1000"],
    ),
    ({"protocols": {"p": {"base": "digits", "optimizer": {"lr": 1e30}}}}, ["protocol 'p': optimizer.lr", "of 100"]),
    ({"protocols": {"p": {"base": "digits", "crop_size": 1}}}, ["protocol 'p': crop_size", "minimum of 4"]),
    (
        {"protocols": {"p": {"base": "digits", "optimizer": {"nesterov": True, "momentum": 0.0}}}},
        ["protocol 'p': optimizer.nesterov needs a momentum"],
    ),
    (
        {"protocols": {"p": {"base": "digits", "optimizer": {"lr": "1e-3"}}}},
        ["protocol 'p': optimizer.lr must be of type number, got '1e-3'", "as in 1.0e-3"],
    ),
    (
        {"protocols": {"p": {"base": "digits", "second_stage": {"schedule": {"name": "step", "milestones": [9999]}}}}},
        ["protocol 'p': second_stage: milestone 9999 is not before the last"],
    ),
    ({"protocols": {"p": {"base": "digits", "checkpoints": ["first"]}}}, ["checkpoints[0] must be one of best, last"]),
    ({"protocols": {"digits": {"base": "digits"}}}, ["protocols.digits", "choose another one"]),
    # overrides
    (
        {"overrides": [{"match": {"method": "mbls"}, "set": {"margn": 1}}]},
        ["'margn' in overrides[0].set for method 'mbls'", "'margin'?"],
    ),
    (
        {"overrides": [{"match": {"method": "mbls"}, "set": {"margin": "x"}}]},
        ["overrides[0].set for method 'mbls': margin must be float, got 'x'"],
    ),
    (
        {"overrides": [{"match": {"dataset": "digits"}, "set": {"margn": 1}}]},
        ["'margn' in overrides[0].set", "'margin'?"],
    ),
    (
        {"overrides": [{"match": {"dataset": "digits"}, "set": {"margin": "x"}}]},
        ["overrides[0].set: margin must be float, got 'x'"],
    ),
    ({"overrides": [{"match": {"method": "mbl"}, "set": {"margin": 1}}]}, ["'mbl' in overrides[0].match", "'mbls'?"]),
    ({"overrides": [{"match": {"dataset": "digts"}, "set": {"margin": 1}}]}, ["'digts' in overrides[0].match"]),
    ({"overrides": [{"match": {"backbone": "resnt8"}, "set": {"margin": 1}}]}, ["'resnt8' in overrides[0].match"]),
    ({"overrides": [{"match": {"protocol": ["digts"]}, "set": {"margin": 1}}]}, ["'digts' in overrides[0].match"]),
    ({"overrides": [{"match": {"methods": "ce"}, "set": {"margin": 1}}]}, ["Unknown key 'methods'", "'method'?"]),
    ({"overrides": [{"match": {"method": 3}, "set": {"margin": 1}}]}, ["one identifier or a list of them, got 3"]),
    ({"overrides": [{"match": {}, "set": {"margin": 1}}]}, ["overrides[0].match must not be empty"]),
    ({"overrides": [{"match": {"method": "mbls"}, "set": {}}]}, ["overrides[0].set must not be empty"]),
    ({"overrides": [{"set": {"margin": 1}}]}, ["overrides[0]: the key 'match' is missing"]),
]


def short(value):
    return json.dumps(value)[:70]


@pytest.mark.parametrize(("grid", "parts"), GRIDS, ids=[short(grid) for grid, _ in GRIDS])
def test_mistakes_in_a_grid(make_config, home, refuses, grid, parts):
    with refuses(ConfigError, *parts):
        Study(make_config(grid), home)


@pytest.mark.parametrize(("changes", "parts"), TOP_LEVEL, ids=[short(changes) for changes, _ in TOP_LEVEL])
def test_mistakes_elsewhere(make_config, home, refuses, changes, parts):
    with refuses(ConfigError, *parts):
        Study(make_config(**changes), home)


def test_a_misspelt_key_is_said_rather_than_that_the_right_one_is_missing(make_config, home, refuses):
    config = make_config()
    config["grid"] = config.pop("grids")
    with refuses(ConfigError, "Unknown key 'grid' in configuration", "did you mean 'grids'?"):
        Study(config, home)
    grid = {"datset" if key == "datasets" else key: value for key, value in make_config()["grids"][0].items()}
    with refuses(ConfigError, "Unknown key 'datset' in configuration: grids[0]", "did you mean 'datasets'?"):
        Study(make_config(grids=[grid]), home)


@pytest.mark.parametrize("key", ["study", "grids"])
def test_missing_keys(make_config, home, refuses, key):
    config = make_config()
    del config[key]
    parts = {"study": ["the key 'study' is missing"], "grids": ["it needs 'grids' or 'external'"]}
    with refuses(ConfigError, *parts[key]):
        Study(config, home)


@pytest.mark.parametrize("key", ["protocol", "datasets", "backbones", "methods", "seeds"])
def test_missing_keys_of_a_grid(make_config, home, refuses, key):
    config = make_config()
    del config["grids"][0][key]
    with refuses(ConfigError, f"grids[0]: the key '{key}' is missing"):
        Study(config, home)


@pytest.mark.parametrize(
    ("change", "method", "parts"),
    [
        ({"batch_size": 17}, "ce", ["120 training images in batches of 17 end each epoch", "drop_last"]),
        ({"second_stage": {"batch_size": 7}}, "tst", ["second stage of protocol 'p'", "batches of 7 end each epoch"]),
        ({"batch_size": 121, "drop_last": True}, "ce", ["leaves no batch of 121 of 120 training", "smaller batches"]),
        ({"batch_size": 17, "drop_last": True}, "ce", None),
        ({"batch_size": 1}, "ce", None),
    ],
)
def test_an_epoch_without_a_batch_or_with_one_of_a_single_image(make_config, home, refuses, change, method, parts):
    grid = {"protocol": "p", "methods": [method]}
    config = make_config(grid, protocols={"p": {"base": "digits", **change}})
    with refuses(ConfigError, "grids[0]: ", *parts) if parts else contextlib.nullcontext():
        Study(config, home)


@pytest.mark.parametrize("config", [None, [], "study", 3])
def test_what_is_no_mapping(home, refuses, config):
    with refuses(ConfigError, "configuration must be of type object"):
        Study(config, home)


def test_the_second_block_is_named_where_the_mistake_is_there(make_config, home, refuses):
    config = make_config()
    config["grids"].append({**config["grids"][0], "methods": ["mblss"]})
    with refuses(ConfigError, "grids[1].methods"):
        Study(config, home)


def test_methods_that_share_no_seed_cannot_be_compared(make_config, home, refuses):
    config = make_config({"methods": ["ce"]})
    config["grids"].append({**config["grids"][0], "methods": ["mbls"], "seeds": [2]})
    question = {"question": "Does it help?", "method": "mbls", "against": "ce"}
    config["statistics"] = {"comparisons": [question]}
    with refuses(ConfigError, "statistics.comparisons[0]", "'mbls' and 'ce' share no", "put both into one grid"):
        Study(config, home)
    config["grids"][1]["seeds"] = [1, 2]
    assert Study(config, home).config["statistics"]["comparisons"] == [question]


def test_a_calibrator_that_needs_features_needs_them_exported(make_config, home, refuses, monkeypatch):
    real = registry.specs("calibrator")
    deep = dataclasses.replace(real["ts"], id="deep", info={"needs": ("logits", "features"), "stochastic": False})
    fake = MappingProxyType({**real, "deep": deep})
    original = registry.specs
    monkeypatch.setattr(registry, "specs", lambda kind: fake if kind == "calibrator" else original(kind))
    with refuses(ConfigError, "grids[0].calibrators: 'deep' needs features", "export_features: true"):
        Study(make_config({"calibrators": ["deep"]}), home)
    protocols = {"p": {"base": "digits", "export_features": True}}
    study = Study(make_config({"calibrators": ["deep"], "protocol": "p"}, protocols=protocols), home)
    assert all("deep" in wanted.calibrators for wanted in study.evaluations.values())


def test_features_must_be_exported_of_the_shifts_on_which_a_calibrator_is_fitted(make_config, home, refuses):
    protocols = {"p": {"base": "digits", "export_features": True}}
    grid = {"calibrators": ["gc_ts"], "protocol": "p", "fit_on": ["val", "same_shift"], "shifts": ["digits_c"]}
    with refuses(ConfigError, "grids[0].calibrators: 'gc_ts' needs features", "export_features: all"):
        Study(make_config(grid, protocols=protocols), home)
    protocols["p"]["export_features"] = "all"
    study = Study(make_config(grid, protocols=protocols), home)
    assert all(wanted.fit_on == ["val", "same_shift"] for wanted in study.evaluations.values())


def test_feature_clipping_is_refused_where_the_head_is_not_linear(make_config, home, refuses):
    protocols = {"p": {"base": "digits", "export_features": True}}
    grid = {"calibrators": ["fc"], "protocol": "p", "methods": ["ce", "tst"]}
    with refuses(ConfigError, "'fc' needs a linear last layer, which 'tst' does not have"):
        Study(make_config(grid, protocols=protocols), home)
    assert Study(make_config({**grid, "methods": ["ce", "mixup"]}, protocols=protocols), home).evaluations


class TestExternal:
    @pytest.fixture
    def files(self, tmp_path):
        for name in ("val.npz", "test.npz"):
            (tmp_path / name).touch()
        return tmp_path

    @pytest.mark.parametrize(
        ("external", "parts"),
        [
            ({"test": "test.npz", "kind": "logits"}, ["external.a: give a 'val' file, or 'split_seed'"]),
            ({"test": "no.npz", "kind": "logits", "split_seed": 1}, ["external.a.test", "no.npz' does not exist"]),
            ({"test": "test.npz", "val": "no.npz", "kind": "logits"}, ["external.a.val", "no.npz' does not exist"]),
            (
                {"test": "test.npz", "val": "val.npz", "split_seed": 1, "kind": "logits"},
                ["external.a: 'val' and 'split_seed' exclude each other"],
            ),
            (
                {"test": "test.npz", "split_seed": 1, "kind": "logits", "seed": 2.0},
                ["external.a.seed must be of type integer, got 2.0 (write 2)"],
            ),
            (
                {"test": "test.npz", "val": "./test.npz", "kind": "logits"},
                ["external.a: 'val' and 'test' are the same file", "never score it", "'split_seed'"],
            ),
            (
                {"test": "test.npz", "val": "val.npz", "val_fraction": 0.5, "kind": "logits"},
                ["external.a: 'val' and 'val_fraction' exclude each other"],
            ),
            (
                {"test": "test.npz", "val": "val.npz", "val_seeds": [1, 2], "kind": "logits"},
                ["external.a.val_seeds says nothing without 'val_rows'"],
            ),
            ({"test": "test.npz", "split_seed": 1}, ["external.a: the key 'kind' is missing"]),
            (
                {"test": "test.npz", "split_seed": 1, "kind": "logits", "calibrators": ["fc"]},
                ["external.a.calibrators: 'fc' needs the last layer", "'head'"],
            ),
            ({"test": "test.npz", "split_seed": 1, "kind": "logits", "head": "no.npz"}, ["external.a.head", "no.npz"]),
            ({"val": "val.npz", "kind": "logits"}, ["external.a: the key 'test' is missing"]),
            ({"test": "test.npz", "split_seed": 1, "kind": "probs"}, ["one of logits, probabilities, got 'probs'"]),
            ({"test": "test.npz", "split_seed": 1, "kind": "logits", "calibrators": ["tss"]}, ["external.a", "'ts'?"]),
            ({"test": "test.npz", "split_seed": 1, "kind": "logits", "val_fraction": 1}, ["external.a.val_fraction"]),
            ({"test": "test.npz", "split_seed": 1, "kind": "logits", "method": "a b"}, ["'a b' is no valid name"]),
            ({"tests": "test.npz", "split_seed": 1, "kind": "logits"}, ["Unknown key 'tests'", "did you mean 'test'?"]),
        ],
    )
    def test_mistakes(self, files, home, refuses, external, parts):
        with refuses(ConfigError, *parts):
            Study({"study": "s", "data_root": str(files), "external": {"a": external}}, home)

    def test_two_under_the_same_key(self, files, home, refuses):
        one = {"test": str(files / "test.npz"), "kind": "logits", "split_seed": 1, "dataset": "cifar10"}
        with refuses(ConfigError, "external.b: another external run has the same dataset"):
            Study({"study": "s", "external": {"a": one, "b": dict(one)}}, home)
        study = Study({"study": "s", "external": {"a": one, "b": {**one, "seed": 2}}}, home)
        assert len(study.runs) == 2

    def test_none_at_all(self, home, refuses):
        with refuses(ConfigError, "external must not be empty"):
            Study({"study": "s", "external": {}}, home)


class TestDevice:
    def test_cuda_without_a_gpu_is_refused_where_jobs_run_here(self, make_config, home, refuses, monkeypatch):
        monkeypatch.setattr(rules, "GPU_DEVICES", ())
        with refuses(ConfigError, "device: 'cuda' was asked for but this machine has no GPU", "device: cpu or auto"):
            RuleBook(make_config(device="cuda"), home, local=True)

    def test_on_a_cluster_the_jobs_find_out(self, make_config, home, monkeypatch):
        monkeypatch.setattr(rules, "GPU_DEVICES", ())
        assert RuleBook(make_config(device="cuda"), home, local=False).gpus == 1


class TestProtocolFiles:
    @pytest.fixture
    def workflow(self, tmp_path, home):
        (tmp_path / "workflow").symlink_to(home / "workflow")
        folder = tmp_path / "config" / "protocols"
        folder.mkdir(parents=True)
        return tmp_path

    @pytest.mark.parametrize(
        ("text", "parts"),
        [
            ("epochs: [1, 2\n", ["digits.yaml, line 2, column 1, is not valid YAML: expected ',' or ']'"]),
            ("just text\n", ["digits.yaml must be a mapping"]),
            ("description: d\nepochs: 3\n", ["protocol 'digits': the key 'batch_size' is missing"]),
        ],
    )
    def test_a_broken_file_is_named(self, workflow, make_config, refuses, text, parts):
        (workflow / "config" / "protocols" / "digits.yaml").write_text(text)
        with refuses(ConfigError, *parts):
            Study(make_config(), workflow)
