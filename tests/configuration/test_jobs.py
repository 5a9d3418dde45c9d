"""What the rules ask: exact wildcards, inputs and outputs, times in the future, GPUs."""

import contextlib
import json
import os
import re
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from calgrid.configuration.repair import find_repairs

from calgrid.configuration import jobs
from calgrid.configuration.jobs import Jobs
from calgrid.errors import ConfigError
from calgrid.storage.layout import RunKey
from calgrid.storage.records import listed, write_record


@pytest.fixture
def made(make_config, home, tmp_path, monkeypatch):
    """A study with everything: two second stages, two shifts, an external run, no GPU."""
    monkeypatch.setattr(jobs, "GPU_DEVICES", ())
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
        external={
            "theirs": {
                "test": "test.npz",
                "kind": "logits",
                "split_seed": 1,
                "backbone": "timm/vit.s",
            }
        },
    )
    return Jobs(config, home, local=True)


def wildcards(key, **more):
    strings = {**key._asdict(), "backbone": key.backbone_folder, "seed": str(key.seed)}
    return SimpleNamespace(**strings, **more)


def trained(made):
    return list(made.plan.study.trained)


def external(made):
    return next(iter(made.plan.study.external))


FAMILIES = ("digits_c", "ood/photos")


class TestJobs:
    def test_wildcards_match_exactly_what_occurs(self, made):
        patterns = made.wildcard_constraints
        assert set(patterns) == {*RunKey._fields, "unit", "probe"}
        for name, right, wrong in (
            ("method", {"tst+mbls"}, {"tsttmbls", "ls"}),  # what an unescaped plus would match
            (
                "backbone",
                {"timm+vit.s"},
                {"timm+vitxs", "timm/vit.s"},
            ),  # a folder of a run has no folder within
            ("seed", {"2"}, {"12"}),
            ("probe", set(), {"profiles"}),
        ):
            assert {
                value for value in right | wrong if re.fullmatch(patterns[name], value)
            } == right

    def test_second_stages_start_from_the_first_stages_checkpoint(self, made):
        key = RunKey("p", "digits", "resnet8", "tst+mbls", 2)
        run = "results/runs/p/digits/resnet8/mbls/seed2"
        assert made.first_stage(wildcards(key)) == [f"{run}/train.json"]
        assert made.train_options(wildcards(key)) == f"--first-stage {run}/model.safetensors"
        assert made.first_stage(wildcards(key._replace(method="ce"))) == []

    def test_times_in_the_future_are_clamped_in_all_that_jobs_make(
        self, made, tmp_path, monkeypatch, capsys
    ):
        monkeypatch.chdir(tmp_path)
        run, part = (
            f"results/{each}/p/digits/resnet8/tst+mbls/seed2"
            for each in ("runs", f"{made.study}/parts")
        )
        files_of = {
            "results/data/photos/manifest.json": ["images.npy"],
            "results/data/photos/prepare.json": [],
            f"{run}/train.json": ["model.safetensors"],
            f"{run}/predict.json": [
                f"logits/best/{name}.parquet" for name in ("val", "test", *FAMILIES)
            ],
            f"{part}/calibrate.json": ["metrics.parquet"],
        }
        names = [
            f"{Path(record).parent}/{name}" for record, files in files_of.items() for name in files
        ]
        for name in [*names, f"{run}/notes.txt"]:
            Path(name).parent.mkdir(parents=True, exist_ok=True)
            Path(name).touch()
        for record, files in files_of.items():
            write_record(Path(record), {"files": listed(Path(record).parent, files)})
        for name in [*names, *files_of, f"{run}/notes.txt"]:
            os.utime(name, (time.time() + 3600,) * 2)
        little = Path(names.pop())
        os.utime(little, (time.time() + 5,) * 2)
        before = little.stat().st_mtime
        assert not find_repairs(made.plan).again & set(files_of)  # the content is right
        assert little.stat().st_mtime == before  # clocks differ a little
        times = {Path(name).stat().st_mtime for name in [*names, *files_of]}
        assert len(times) == 1  # nothing looks older, so nothing is made again
        assert times.pop() <= time.time()
        assert Path(run, "notes.txt").stat().st_mtime > time.time()
        warning = capsys.readouterr().err
        assert "the times of 11 files" in warning
        assert "results that now look older than their inputs are computed once more" in warning
        find_repairs(made.plan)
        assert "future" not in capsys.readouterr().err

    def test_data_of_shifts(self, made):
        units = SimpleNamespace(unit="digits_c")
        assert made.units == ["digits", "digits_c", "photos"]
        assert made.data_base(units) == ["results/data/digits/manifest.json"]
        assert "--base results/data/digits" in made.data_options(units)
        assert made.data_base(SimpleNamespace(unit="photos")) == []
        for key in trained(made):
            asked = key in made.evaluations  # nobody asked how a first stage does under shift
            units = made.units if asked else ["digits"]
            assert made.predict_data(wildcards(key)) == [
                f"results/data/{unit}/manifest.json" for unit in units
            ]
            assert made.predict_families(wildcards(key)) == ("digits_c ood/photos" if asked else "")

    def test_an_external_run_needs_its_files_alone(self, made, tmp_path):
        key = external(made)
        names = wildcards(key)
        assert not re.fullmatch(made.trained_protocols, key.protocol)
        assert made.external_files(names) == [str(tmp_path / "test.npz")]
        assert json.loads(made.spec("external")(names))["external"]["split_seed"] == 1

    def test_parts_and_records(self, made):
        assert len(made.parts()) == len(made.evaluations) == 5
        assert not any("/external/" in record for record in made.records())
        assert len(made.records()) == 2 * 4

    @pytest.mark.parametrize(
        ("device", "local", "present", "gpus"),
        [
            ("auto", True, False, 0),
            ("auto", True, True, 1),
            ("cpu", True, True, 0),
            ("cuda", True, True, 1),
            ("cuda", True, False, None),
            ("auto", False, False, 1),
            ("cpu", False, False, 0),
        ],
    )
    def test_gpus_that_a_job_asks_for(
        self, make_config, home, refuses, monkeypatch, tmp_path, device, local, present, gpus
    ):
        monkeypatch.setattr(jobs, "GPU_DEVICES", (str(tmp_path),) if present else ())
        parts = ["device: 'cuda' needs a GPU and this machine has none", "device: cpu or auto"]
        with refuses(ConfigError, *parts) if gpus is None else contextlib.nullcontext():
            assert Jobs(make_config(device=device), home, local=local).gpus == gpus


def test_a_run_is_only_asked_for_stages_that_it_has(made, refuses):
    first, second = (
        RunKey("p", "digits", "resnet8", "ce", 1),
        RunKey("p", "digits", "resnet8", "tst", 1),
    )
    for stage in (made.plan.train, made.plan.predict):
        with refuses(ConfigError, external(made).path, "is external and cannot be trained"):
            stage(external(made))
    with refuses(ConfigError, second.path, "is trained and cannot be imported"):
        made.plan.external(second)
    with refuses(ConfigError, first.path, "is only a first stage", "add its method to a grid"):
        made.plan.calibrate(first)


def test_what_jobs_inherit(made, home, monkeypatch):
    for name in ("CALGRID_DEVICE", "PYTHONPATH"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    monkeypatch.setenv("CALGRID_PLANNED_AT", "0")
    monkeypatch.delenv("CALGRID_PLANNED_AT")
    begin = time.time()
    made.export_environment()
    assert os.environ["CALGRID_DEVICE"] == "auto"
    assert os.environ["PYTHONPATH"] == f"{home / 'src'}{os.pathsep}before"
    assert begin <= float(os.environ["CALGRID_PLANNED_AT"]) <= time.time()
    planned = os.environ["CALGRID_PLANNED_AT"]
    made.export_environment()
    assert (
        os.environ["CALGRID_PLANNED_AT"] == planned
    )  # a job that reads the workflow again keeps its grid's time
