"""A study: the union of its grids, with first stages and external runs."""

import itertools
import json

import pytest

from calgrid.errors import ConfigError
from calgrid.storage.records import RunKey
from calgrid.study.study import Study


def key(method, seed=1, **changes):
    return RunKey("digits", "digits", "resnet8", method, seed)._replace(**changes)


def test_all_combinations_are_run(study):
    runs = study(
        {"methods": ["ce", "ls"], "seeds": [1, 2], "backbones": ["resnet8", "resnet20"]}
    ).runs
    axes = itertools.product(("ce", "ls"), (1, 2), ("resnet8", "resnet20"))
    assert set(runs) == {key(method, seed, backbone=backbone) for method, seed, backbone in axes}


def test_several_blocks_unite_what_they_want_of_a_run(study):
    ce = {"methods": ["ce"], "calibrators": ["none", "ts"], "calibrator_seeds": [2]}
    more = {"methods": ["ce", "ls"], "calibrators": ["smart"], "calibrator_seeds": [1, 2]}
    made = study(
        {**ce, "shifts": ["digits_c"]},
        {**more, "shifts": ["ood/photos"]},
        {"methods": ["ce"], "fit_on": ["same_shift"]},
    )
    assert list(made.runs) == [key("ce"), key("ls")]
    both, second = made.evaluations[key("ce")], made.evaluations[key("ls")]
    assert list(both.calibrators) == ["none", "ts", "smart"]
    assert both.fit_on == ["val", "same_shift"]
    assert both.calibrator_seeds == [0, 1, 2]
    assert both.families == ["digits_c", "ood/photos"]
    assert list(second.calibrators) == ["smart"]
    assert second.families == ["ood/photos"]


def test_own_entries_stand_beside_those_of_an_included_file(make_config, home, tmp_path, refuses):
    file = tmp_path / "shared.yaml"
    file.write_text("methods: {a: {base: ls, alpha: 0.2}, b: {base: ls, alpha: 0.3}}")
    own = {"methods": {"b": {"base": "ls", "alpha": 0.4}}, "include": str(file)}
    made = Study(make_config({"methods": ["a", "b"]}, **own), home)
    assert [run.method.loss_options["alpha"] for run in made.runs.values()] == [0.2, 0.4]
    assert "include" not in made.config.model_fields_set
    file.write_text("method: {}")
    with refuses(ConfigError, f"Unknown key 'method' in include: the file {file}"):
        Study(make_config(**own), home)
    file.write_text("methods: [a]")
    with refuses(ConfigError, "configuration: methods must be of type object, got ['a']"):
        Study(make_config(**own), home)


def test_first_stages_that_the_grid_does_not_name_are_added_before_and_not_evaluated(study):
    made = study({"methods": ["tst+mbls", "tst"], "seeds": [1, 2]})
    assert list(made.runs) == [
        key(method, n)
        for pair in (("mbls", "tst+mbls"), ("ce", "tst"))
        for n in (1, 2)
        for method in pair
    ]
    assert {each.method for each in made.evaluations} == {"tst", "tst+mbls"}
    assert made.runs[key("tst+mbls", 2)].first_stage == key("mbls", 2)
    assert made.runs[key("tst")].first_stage == key("ce")


def test_a_first_stage_that_the_grid_names_is_one_run(study):
    made = study({"methods": ["tst", "ce"]})
    assert list(made.runs) == [key("ce"), key("tst")]
    assert set(made.evaluations) == set(made.runs)


def test_a_second_stage_has_its_own_protocol(study):
    protocols = {
        "p": {"base": "digits", "second_stage": {"epochs": 9, "checkpoints": ["best", "last"]}}
    }
    made = study({"methods": ["tst"], "protocol": "p"}, protocols=protocols)
    first, second = made.runs[key("ce", protocol="p")], made.runs[key("tst", protocol="p")]
    assert first.protocol.epochs == made.protocols.get("digits", "here").epochs != 9
    assert second.protocol.epochs == 9
    assert (first.checkpoints, second.checkpoints) == (("last",), ("best", "last"))
    assert "second_stage" not in second.protocol


def test_temperature_scaling_with_an_objective_is_another_calibrator(study):
    variants = {"ts_ls": {"base": "ts", "objective": "ls"}, "same": {"base": "ts"}}
    made = study({"calibrators": ["ts_ls", "same"]}, calibrators=variants)
    other, same = made.evaluations[key("ce")].calibrators.values()
    assert (other["name"], other["id"]) == ("ts_ls", "ts_objective")
    assert other["options"]["objective"] == "ls"
    assert (same["id"], same["options"]) == ("ts", {})


def test_variants_of_calibrators(study):
    made = study(
        {"calibrators": ["smart", "smart_wide"]},
        calibrators={"smart_wide": {"base": "smart", "sigma": 2}},
    )
    plain, wide = made.evaluations[key("ce")].calibrators.values()
    assert (wide["name"], wide["id"]) == ("smart_wide", "smart")
    assert wide["options"] == {**plain["options"], "sigma": 2.0}
    assert wide["stochastic"]
    assert "seed" not in wide["options"]  # given by calibrator_seeds


class TestExternal:
    @pytest.fixture
    def make(self, home, tmp_path):
        for name in ("val.parquet", "test.parquet"):
            (tmp_path / name).touch()

        def make(**changes):
            external = {"val": "val.parquet", "test": "test.parquet", "kind": "logits", **changes}
            return Study(
                {"study": "s", "data_root": str(tmp_path), "external": {"theirs": external}}, home
            )

        return make

    def test_a_run_with_defaults(self, make, tmp_path):
        study = make()
        (run_key,) = study.runs
        assert run_key == RunKey("external", "theirs", "unknown", "ce", 0)
        assert study.runs[run_key].checkpoints == ("last",)
        assert list(study.evaluations[run_key].calibrators) == ["none"]
        assert study.image_sets() == []
        files = [tmp_path / "val.parquet", tmp_path / "test.parquet"]
        assert study.external_files(run_key) == files
        elsewhere = make(**{path.stem: str(path.resolve()) for path in files}, dataset="other")
        assert elsewhere.external_files(*elsewhere.runs) == files

    def test_a_run_with_everything_named(self, make):
        names = {"dataset": "cifar10", "backbone": "timm/vit", "method": "maccal+mbls", "seed": 3}
        study = make(**names, calibrators=["ts", "smart"], calibrator_seeds=[1, 2])
        (run_key,) = study.runs
        assert run_key == RunKey("external", "cifar10", "timm/vit", "maccal+mbls", 3)
        assert study.evaluations[run_key].calibrator_seeds == [1, 2]

    def test_sizes_of_the_validation_set_are_runs_of_their_own(self, make):
        subsets = {
            (each.dataset, each.seed): (run.external["val_rows"], run.external["val_seed"])
            for each, run in make(val_rows=[50, 100], val_seeds=[3, 4]).external.items()
        }
        assert subsets == {
            (f"theirs_n{rows}", seed): (rows, seed) for rows in (50, 100) for seed in (3, 4)
        }


def test_planning_imports_neither_torch_nor_snakemake(run_python, make_config, home):
    program = """
import json, sys
from pathlib import Path
from calgrid.plan.plan import Plan
from calgrid.plan.rules import Jobs
from calgrid.study.study import Study
from calgrid.errors import ConfigError
jobs = Jobs(Plan(Study(json.loads(sys.argv[1]), Path(sys.argv[2]))), local=True)
jobs.plan.manifest()
heavy = {"torch", "snakemake", "sklearn", "numpy", "pandas", "pyarrow"}
print(len(jobs.plan.study.runs), heavy & set(sys.modules))
"""
    config = make_config({"calibrators": ["none", "ts", "smart"], "shifts": ["digits_c"]})
    assert run_python(program, json.dumps(config), home) == "2 set()\n"
