"""A plan: which change of the configuration makes which job run again, and what the rules are told."""

import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from calgrid.configuration import rules
from calgrid.configuration.plan import Plan, as_json
from calgrid.configuration.rules import RuleBook, alternatives
from calgrid.configuration.runs import RunKey
from calgrid.configuration.study import Study
from calgrid.errors import ConfigError

METHODS = ("ce", "mbls", "tst", "tst+mbls")
STAGES = ("train", "predict", "calibrate")
ALL = {f"{stage} {method}" for stage in STAGES for method in METHODS}


def of(*stages, methods=METHODS):
    return {f"{stage} {method}" for stage in stages for method in methods}


@pytest.fixture
def fingerprints(make_config, home):
    """Fingerprint of every stage of every run of seed 1, for a study with the given changes."""

    def compute(grid=None, protocol=None, **changes):
        protocols = {"p": {"base": "digits", **(protocol or {})}}
        grid = {"methods": list(METHODS), "protocol": "p", "calibrators": ["none", "ts"], **(grid or {})}
        plan = Plan(Study(make_config(grid, protocols=protocols, **changes), home))
        return {
            f"{stage} {key.method}": getattr(plan, stage)(key)["fingerprint"]
            for key in plan.study.runs
            for stage in STAGES
            if key.seed == 1 and key.backbone == "resnet8"
        }

    return compute


OVERRIDE = [{"match": {"method": "mbls"}, "set": {"margin": 3}}]
SECOND = [{"match": {"method": "tst"}, "set": {"hidden": 32}}]
CHANGES = {
    "a calibrator more": ({"grid": {"calibrators": ["none", "ts", "iso"]}}, of("calibrate")),
    "a calibrator seed more": ({"grid": {"calibrator_seeds": [0, 1]}}, set()),
    "a seed more": ({"grid": {"seeds": [1, 2]}}, set()),
    "a backbone more": ({"grid": {"backbones": ["resnet8", "resnet20"]}}, set()),
    "a method more": ({"grid": {"methods": [*METHODS, "ls"]}}, set()),
    "a shift family": ({"grid": {"shifts": ["digits_c"]}}, of("calibrate")),
    "other bootstrap": ({"statistics": {"bootstrap": 5}}, of("calibrate")),
    "resamples": ({"statistics": {"paired_resamples": 5}}, of("calibrate")),
    "other bins": ({"statistics": {"bins": 10}}, of("calibrate")),
    "other baseline": ({"statistics": {"baseline": "mbls"}}, set()),
    "a hyper-parameter": ({"overrides": OVERRIDE}, of(*STAGES, methods=("mbls", "tst+mbls"))),
    "a hyper-parameter of a second stage": ({"overrides": SECOND}, of(*STAGES, methods=("tst",))),
    "features too": ({"protocol": {"export_features": True}}, of("predict", "calibrate")),
    "test images normalised as ImageNet's": (
        {"protocol": {"test_normalisation": {"digits": "imagenet"}}},
        of("predict", "calibrate"),
    ),
    "those of another data set": ({"protocol": {"test_normalisation": {"cifar100": "imagenet"}}}, set()),
    "other learning rate": ({"protocol": {"optimizer": {"lr": 0.123}}}, ALL),
    "dropout before the head": ({"protocol": {"head_dropout": 0.5}}, ALL),
    "other second stage": ({"protocol": {"second_stage": {"epochs": 9}}}, of(*STAGES, methods=("tst", "tst+mbls"))),
    "other description": ({"protocol": {"description": "the same, in other words"}}, set()),
    "a default given": ({"protocol": {"export_features": False}}, set()),
    "other name of the study": ({"study": "other"}, set()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_reruns_what_depends_on_it_and_nothing_else(fingerprints, change):
    options, expected = CHANGES[change]
    before, after = fingerprints(), fingerprints(**options)
    assert {name for name in before if before[name] != after[name]} == expected


def test_a_stochastic_calibrator_is_fitted_for_every_calibrator_seed(fingerprints):
    """The others are fitted once, whatever the seeds, and so need no new run."""
    grid = {"calibrators": ["ts", "smart"]}
    before, after = fingerprints(grid), fingerprints({**grid, "calibrator_seeds": [0, 1]})
    assert {name for name in before if before[name] != after[name]} == of("calibrate")


def test_the_order_of_calibrator_seeds_does_not_count(fingerprints):
    grids = [{"calibrators": ["smart"], "calibrator_seeds": seeds} for seeds in ([1, 2], [2, 1])]
    assert fingerprints(grids[0]) == fingerprints(grids[1])


def test_an_override_with_the_default_value_changes_nothing(fingerprints):
    """Also as an integer where the default is a float."""
    overrides = [{"match": {"method": "mbls"}, "set": {"margin": 6}}]
    assert fingerprints(overrides=overrides) == fingerprints()


def test_an_override_is_the_same_as_a_variant_but_for_its_name(make_config, home):
    variant = make_config({"methods": ["mine"]}, methods={"mine": {"base": "mbls", "margin": 3}})
    named = make_config({"methods": ["mbls"]}, overrides=OVERRIDE)
    specs = []
    for config in (variant, named):
        plan = Plan(Study(config, home))
        (key,) = plan.study.runs
        spec = dict(plan.train(key))
        specs.append({name: spec[name] for name in ("protocol", "procedure", "loss", "data", "first_stage")})
    assert specs[0] == specs[1]


class TestSpecifications:
    @pytest.fixture
    def plan(self, make_config, home):
        grid = {
            "methods": ["ce", "tst"],
            "calibrators": ["none", "ts", "smart"],
            "calibrator_seeds": [3, 5],
            "shifts": ["digits_c", "ood/photos"],
        }
        return Plan(Study(make_config(grid), home))

    def test_of_a_training(self, plan):
        first, second = plan.study.runs
        assert plan.train(first)["first_stage"] is None
        assert plan.train(second)["first_stage"] == {
            "fingerprint": plan.train(first)["fingerprint"],
            "checkpoint": "last",
        }
        spec = plan.train(second)
        assert spec["key"] == second._asdict()
        assert (spec["procedure"]["id"], spec["loss"]["id"]) == ("tst", "ce")
        assert "export_features" not in spec["protocol"]

    def test_of_a_prediction_names_all_families_whichever_are_wanted(self, plan, make_config, home):
        key = next(iter(plan.study.runs))
        assert set(plan.predict(key)["families"]) == set(plan.study.datasets.families("digits"))
        other = Plan(Study(make_config({"methods": ["ce"]}), home))
        assert other.predict(key) == plan.predict(key)
        assert plan.predict(key)["run_fingerprint"] == plan.train(key)["fingerprint"]

    def test_of_a_calibration(self, plan):
        spec = plan.calibrate(next(iter(plan.study.runs)))
        assert [(entry["name"], entry["seeds"]) for entry in spec["calibrators"]] == [
            ("none", [3]),
            ("ts", [3]),
            ("smart", [3, 5]),
        ]
        assert spec["families"] == ["digits_c", "ood/photos"]
        assert spec["statistics"] == {"bins": 15, "bootstrap": 1000, "level": 0.95, "seed": 0}

    def test_are_json_on_one_line_and_come_back(self, plan):
        for key in plan.study.runs:
            for stage in STAGES:
                spec = getattr(plan, stage)(key)
                assert "\n" not in as_json(spec)
                assert json.loads(as_json(spec)) == json.loads(json.dumps(spec))

    def test_the_manifest_lists_every_part_with_its_fingerprint(self, plan):
        manifest = json.loads(json.dumps(plan.manifest()))
        assert [run["fingerprint"] for run in manifest["runs"]] == [
            plan.calibrate(key)["fingerprint"] for key in plan.study.evaluations
        ]
        assert manifest["runs"][0]["part"] == "results/small/parts/digits/digits/resnet8/ce/seed1"
        assert "device" not in manifest["configuration"]
        assert manifest["study"] == "small"


@pytest.fixture
def book(make_config, home, tmp_path, monkeypatch):
    """A study with everything: two second stages, two shifts, an external run, no GPU."""
    monkeypatch.setattr(rules, "GPU_DEVICES", ())
    (tmp_path / "test.npz").touch()
    config = make_config(
        {
            "methods": ["tst", "tst+mbls"],
            "protocol": "p",
            "seeds": [1, 2],
            "calibrators": ["ts"],
            "shifts": ["ood/photos", "digits_c"],
        },
        protocols={"p": {"base": "digits", "second_stage": {"checkpoints": ["best"]}}},
        data_root=str(tmp_path),
        external={"theirs": {"test": "test.npz", "kind": "logits", "split_seed": 1, "backbone": "timm/vit.s"}},
    )
    return RuleBook(config, home, local=True)


def wildcards(key, **more):
    strings = {**key._asdict(), "backbone": key.backbone_folder, "seed": str(key.seed)}
    return SimpleNamespace(**strings, **more)


def trained(book):
    return [key for key, run in book.runs.items() if run.external is None]


def external(book):
    return next(key for key, run in book.runs.items() if run.external is not None)


class TestRuleBook:
    def test_every_parameter_is_a_string(self, book):
        """Snakemake notices a changed parameter only if its function returns one."""
        for key in trained(book):
            assert isinstance(book.train_spec(wildcards(key)), str)
            assert isinstance(book.predict_spec(wildcards(key)), str)
            assert isinstance(book.train_options(wildcards(key)), str)
        for key in book.evaluations:
            assert isinstance(book.calibrate_spec(wildcards(key)), str)
        for unit in book.units:
            assert isinstance(book.data_fingerprint(SimpleNamespace(unit=unit)), str)
            assert isinstance(book.data_options(SimpleNamespace(unit=unit)), str)
        assert isinstance(book.external_spec(wildcards(external(book))), str)
        for stage in ("aggregate", "tables", "figures", "report"):
            assert isinstance(book.stage_fingerprint(stage), str)

    def test_wildcards_match_exactly_what_occurs(self, book):
        patterns = book.wildcard_constraints
        assert re.fullmatch(patterns["method"], "tst+mbls")
        assert not re.fullmatch(patterns["method"], "tsttmbls")  # what an unescaped plus would match
        assert not re.fullmatch(patterns["method"], "ls")
        assert re.fullmatch(patterns["backbone"], "timm+vit.s")
        assert not re.fullmatch(patterns["backbone"], "timm+vitxs")
        assert not re.fullmatch(patterns["backbone"], "timm/vit.s")  # a folder of a run has no folder within
        assert re.fullmatch(patterns["seed"], "2")
        assert not re.fullmatch(patterns["seed"], "12")
        assert set(patterns) == {*RunKey._fields, "unit", "probe"}
        assert not re.fullmatch(patterns["probe"], "profiles")  # there are none

    def test_alternatives(self):
        assert re.fullmatch(alternatives(["a+b", "a.b"]), "a+b")
        assert not re.fullmatch(alternatives(["a.b"]), "axb")
        assert not re.search(alternatives([]), "anything")

    def test_a_seed_of_a_wildcard_is_a_number(self, book):
        for key in book.runs:
            assert book.key(wildcards(key)) == key

    def test_second_stages_start_from_the_first_stages_checkpoint(self, book):
        key = RunKey("p", "digits", "resnet8", "tst+mbls", 2)
        run = "results/runs/p/digits/resnet8/mbls/seed2"
        assert book.first_stage(wildcards(key)) == [f"{run}/train.json"]
        assert book.train_options(wildcards(key)) == f"--first-stage {run}/model.safetensors"
        assert book.first_stage(wildcards(key._replace(method="ce"))) == []

    def test_times_in_the_future_are_mended_in_all_that_jobs_make(self, book, tmp_path, monkeypatch, capsys):
        monkeypatch.chdir(tmp_path)
        run = "results/runs/p/digits/resnet8/tst+mbls/seed2"
        names = [
            "results/data/photos/manifest.json",
            *(f"{run}/{name}" for name in ("train.json", "predict.json")),
            *(
                f"results/{book.study}/parts/p/digits/resnet8/tst+mbls/seed2/{n}"
                for n in ("metrics.parquet", "calibrate.json")
            ),
        ]
        for name in [*names, f"{run}/notes.txt"]:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).touch()
            os.utime(name, (time.time() + 3600,) * 2)
        book.mend_times()
        assert {name: Path(name).stat().st_mtime <= time.time() for name in names} == dict.fromkeys(names, True)
        assert Path(run, "notes.txt").stat().st_mtime > time.time()
        assert len({Path(name).stat().st_mtime for name in names}) == 1  # nothing looks older, so nothing is made again
        warning = capsys.readouterr().err
        assert "the times of 5 files" in warning
        assert "what was made of them and looks older now is made once more" in warning
        book.mend_times()
        assert capsys.readouterr().err == ""

    def test_data_of_shifts(self, book):
        units = SimpleNamespace(unit="digits_c")
        assert book.units == ["digits", "digits_c", "photos"]
        assert book.data_base(units) == ["results/data/digits/manifest.json"]
        assert "--base results/data/digits" in book.data_options(units)
        assert book.data_base(SimpleNamespace(unit="photos")) == []
        for key in trained(book):
            assert book.predict_data(wildcards(key)) == [f"results/data/{unit}/manifest.json" for unit in book.units]
            assert book.predict_families(wildcards(key)) == "digits_c ood/photos"

    def test_a_calibration_reads_what_was_predicted(self, book):
        for key in book.evaluations:
            assert book.predictions(wildcards(key)) == [f"results/runs/{key.path}/predict.json"]

    def test_an_external_run_needs_its_files_alone(self, book, tmp_path):
        key = external(book)
        names = wildcards(key)
        assert not re.fullmatch(book.trained_protocols, key.protocol)
        assert book.external_files(names) == [str(tmp_path / "test.npz")]
        assert json.loads(book.external_spec(names))["external"]["split_seed"] == 1

    def test_parts_and_records(self, book):
        assert len(book.parts()) == len(book.evaluations) == 5
        assert not any("/external/" in record for record in book.records())
        assert len(book.records()) == 2 * 4

    @pytest.mark.parametrize(
        ("device", "local", "present", "gpus"),
        [
            ("auto", True, False, 0),
            ("auto", True, True, 1),
            ("cpu", True, True, 0),
            ("cuda", True, True, 1),
            ("auto", False, False, 1),
            ("cpu", False, False, 0),
        ],
    )
    def test_gpus_that_a_job_asks_for(self, make_config, home, monkeypatch, tmp_path, device, local, present, gpus):
        monkeypatch.setattr(rules, "GPU_DEVICES", (str(tmp_path),) if present else ())
        assert RuleBook(make_config(device=device), home, local=local).gpus == gpus


def test_a_run_is_only_asked_for_stages_that_it_has(book, refuses):
    first, second = RunKey("p", "digits", "resnet8", "ce", 1), RunKey("p", "digits", "resnet8", "tst", 1)
    for stage in (book.plan.train, book.plan.predict):
        with refuses(ConfigError, external(book).path, "is external: it is not trained here"):
            stage(external(book))
    with refuses(ConfigError, second.path, "is trained here: it is not imported"):
        book.plan.external(second)
    with refuses(ConfigError, first.path, "is only a first stage", "name its method in a grid"):
        book.plan.calibrate(first)


def test_what_jobs_inherit(book, home, monkeypatch):
    for name in ("CALGRID_DEVICE", "PYTHONPATH"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("CALGRID_PLANNED_AT", "0")
    monkeypatch.delenv("CALGRID_PLANNED_AT")
    begin = time.time()
    book.export_environment()
    assert os.environ["CALGRID_DEVICE"] == "auto"
    assert os.environ["PYTHONPATH"] == f"{home / 'src'}{os.pathsep}before"
    assert begin <= float(os.environ["CALGRID_PLANNED_AT"]) <= time.time()
    planned = os.environ["CALGRID_PLANNED_AT"]
    book.export_environment()
    assert os.environ["CALGRID_PLANNED_AT"] == planned  # a job that reads the workflow again keeps its grid's time


def test_an_external_run_is_imported_again_when_its_description_changes_but_not_for_a_calibrator(home, tmp_path):
    (tmp_path / "test.npz").touch()

    def fingerprint(**changes):
        one = {"test": str(tmp_path / "test.npz"), "kind": "logits", "split_seed": 1, "dataset": "d", **changes}
        plan = Plan(Study({"study": "s", "external": {"a": one}}, home))
        (key,) = plan.study.runs
        assert plan.logits_fingerprint(key) == plan.run_fingerprint(key) == plan.external(key)["fingerprint"]
        return plan.external(key)["fingerprint"]

    assert fingerprint(calibrators=["ts"], calibrator_seeds=[1, 2]) == fingerprint()
    assert len({fingerprint(), fingerprint(split_seed=2), fingerprint(kind="probabilities"), fingerprint(seed=1)}) == 4


class TestReductionOfTheProtocol:
    """The focal_calibration line sums its losses: the protocol says so, and what is trained must follow."""

    @staticmethod
    def options(home, method, **changes):
        grid = {"datasets": ["digits"], "backbones": ["resnet8"], "methods": ["mbls", "tst+mbls"], "seeds": [1]}
        config = {"study": "s", "grids": [{"protocol": "fcline", **grid}], **changes}
        plan = Plan(Study(config, home))
        key = next(key for key in plan.study.runs if key.method == method)
        return plan.train(key)["loss"]["options"]

    def test_reaches_the_loss(self, home):
        assert self.options(home, "mbls")["reduction"] == "sum"

    def test_of_the_second_stage_reaches_its_loss(self, home):
        assert self.options(home, "tst+mbls")["reduction"] == "mean"
        protocols = {"summed": {"base": "fcline", "second_stage": {"reduction": "sum"}}}
        grid = {
            "protocol": "summed",
            "datasets": ["digits"],
            "backbones": ["resnet8"],
            "methods": ["tst"],
            "seeds": [1],
        }
        plan = Plan(Study({"study": "s", "protocols": protocols, "grids": [grid]}, home))
        reductions = {key.method: plan.train(key)["loss"]["options"]["reduction"] for key in plan.study.runs}
        assert reductions == {"ce": "sum", "tst": "sum"}

    def test_an_override_of_the_method_wins(self, home):
        override = {"match": {"method": "mbls"}, "set": {"reduction": "mean"}}
        assert self.options(home, "mbls", overrides=[override])["reduction"] == "mean"
        assert self.options(home, "tst+mbls", overrides=[override])["reduction"] == "mean"
