"""What the rules ask: exact wildcards, inputs and outputs, GPUs."""

import contextlib
import os
import re
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from calgrid.errors import ConfigError, StateError
from calgrid.plan import resources
from calgrid.plan.plan import KINDS, Plan
from calgrid.plan.rules import Jobs, check_temporary_folder
from calgrid.storage.records import RunKey
from calgrid.study.study import Study


@pytest.fixture
def made(make_config, home, tmp_path, monkeypatch):
    """A study with everything: two second stages, two shifts, an external run, no GPU."""
    monkeypatch.setattr(resources, "GPU_DEVICES", ())
    (tmp_path / "test.npz").touch()
    grid = {"methods": ["tst", "tst+mbls"], "protocol": "p", "seeds": [1, 2]}
    grid |= {"calibrators": ["ts"], "shifts": ["ood/photos", "digits_c"]}
    theirs = {"test": "test.npz", "kind": "logits", "split_seed": 1, "backbone": "timm/vit.s"}
    config = make_config(
        grid,
        protocols={"p": {"base": "digits", "second_stage": {"checkpoints": ["best"]}}},
        data_root=str(tmp_path),
        external={"theirs": theirs},
    )
    return Jobs(Plan(Study(config, home)), local=True)


def wildcards(key, **more):
    strings = {**key.wildcards, "seed": str(key.seed)}
    return SimpleNamespace(**strings, **more)


def trained(made):
    return list(made.plan.study.trained)


def external(made):
    return next(iter(made.plan.study.external))


class TestJobs:
    def test_all_methods_of_a_seed_come_before_those_of_the_next(self, made):
        keys = trained(made)
        first = sorted(keys, key=lambda key: made.priority(wildcards(key)), reverse=True)
        assert first == [key for seed in (1, 2) for key in keys if key.seed == seed]
        assert len(set(map(made.priority, map(wildcards, keys)))) == len(keys)

    def test_wildcards_match_exactly_what_occurs(self, made):
        patterns = made.wildcard_constraints
        assert set(patterns) == {*RunKey._fields, "image_set", "probe", "id"}
        for name, right, wrong in (
            ("method", {"tst+mbls"}, {"tsttmbls", "ls"}),  # what an unescaped plus would match
            # a folder of a run has no folder within
            ("backbone", {"timm+vit.s"}, {"timm+vitxs", "timm/vit.s"}),
            ("seed", {"2"}, {"12"}),
            ("probe", set(), {"profiles"}),
        ):
            pattern = re.compile(patterns[name])
            assert set(filter(pattern.fullmatch, right | wrong)) == right

    def test_second_stages_start_from_the_model_of_the_first_stage(self, made):
        key = RunKey("p", "digits", "resnet8", "tst+mbls", 2)
        folder = made.plan.train(key._replace(method="mbls")).folder
        assert folder.startswith(
            "results/runs/digits/digits/resnet8/mbls/seed2/train-"
        )  # p trains alike
        assert f"{folder}/model.safetensors" in made.plan.train(key).reads
        read = made.plan.train(key._replace(method="ce")).reads
        assert not any(name.endswith("model.safetensors") for name in read)

    def test_data_of_shifts(self, made):
        manifests = {
            image_set: f"{made.plan.data(image_set).folder}/manifest.json"
            for image_set in ("digits", "digits_c", "photos")
        }
        assert made.plan.data("digits_c").reads == (manifests["digits"],)
        assert made.plan.data("photos").reads == ()
        for key in trained(made):
            # nobody asked how a first stage does under shift
            evaluated = key in made.plan.study.evaluations
            shifts = {manifests["digits_c"], manifests["photos"]} if evaluated else set()
            assert {manifests["digits"], *shifts} <= {*made.plan.predict(key).reads}
            assert manifests["digits"] in made.plan.train(key).reads

    def test_an_external_run_needs_its_files_alone(self, made, tmp_path):
        key = external(made)
        (logits,) = [job for job in made.plan.jobs if job.kind == "import"]
        assert re.fullmatch(made.ids(KINDS["import"]), logits.id)
        assert not re.fullmatch(made.ids(KINDS["predict"]), logits.id)
        assert logits.reads == (str(tmp_path / "test.npz"),)
        assert made.plan.external(key).spec["external"]["split_seed"] == 1

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
        monkeypatch.setattr(resources, "GPU_DEVICES", (str(tmp_path),) if present else ())
        parts = ["device: 'cuda' needs a GPU and this machine has none", "device: cpu or auto"]
        with refuses(ConfigError, *parts) if gpus is None else contextlib.nullcontext():
            plan = Plan(Study(make_config(device=device), home))
            assert Jobs(plan, local=local).gpus == gpus


def test_a_folder_of_another_user_is_named_before_any_job(made, tmp_path, monkeypatch, refuses):
    monkeypatch.chdir(tmp_path)
    made.check_writable()
    theirs = Path(made.plan.jobs[-1].folder).absolute().parents[1]
    theirs.mkdir(parents=True)
    access = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: Path(path) != theirs and access(path, mode)
    )
    with refuses(StateError, f"The folder {theirs} is not writable"):
        made.check_writable()


@pytest.mark.parametrize("variable", ["TMP", "TMPDIR"])
def test_a_full_folder_for_temporary_files_is_named(variable, tmp_path, monkeypatch, refuses):
    for name in ("TMP", "TMPDIR"):
        monkeypatch.delenv(name, raising=False)
    for folder in (tmp_path, tmp_path / "missing"):  # Snakemake takes another one if it is missing
        monkeypatch.setenv(variable, str(folder))
        check_temporary_folder()
    full = Path("/dev/full").open("wb")  # noqa: SIM115  (closed by what writes to it)
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: full)
    with refuses(
        StateError, str(tmp_path), f"is full; free some space, or set the variable {variable}"
    ):
        check_temporary_folder()


def test_what_jobs_inherit(made, home, monkeypatch):
    for name in ("CALGRID_DEVICE", "PYTHONPATH", "PYTHONSAFEPATH"):
        monkeypatch.setenv(name, "before")
    monkeypatch.setenv("PATH", os.environ["PATH"])
    made.export_environment()
    assert os.environ["CALGRID_DEVICE"] == "auto"
    assert os.environ["PYTHONSAFEPATH"] == "1"
    assert os.environ["PYTHONPATH"] == f"{home / 'src'}{os.pathsep}before"
