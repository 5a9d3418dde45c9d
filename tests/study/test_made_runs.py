"""Runs of another study, named under ``external``; the job of imports writes their files."""

from pathlib import Path

import numpy as np
import pytest
from tests.jobs.small import import_run

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.storage.records import RunKey, write_record
from calgrid.study import external
from calgrid.study.model import OfStudy
from calgrid.study.slow_checks import check_external
from calgrid.study.study import Study


@pytest.fixture
def first(home, tmp_path, monkeypatch):
    """Plan the study ``first`` with two methods, and make the runs of some."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = rng.integers(3, size=60)
    np.savez("head.npz", weight=np.ones((3, 2)), bias=np.zeros(3))

    def make(*made, scale=1.0, **changes):
        entries = {}
        for method in ("ce", "ls"):
            logits = scale * np.eye(3)[labels] + rng.normal(size=(60, 3))
            np.savez(f"{method}.npz", logits=logits, label=labels)
            names = {"dataset": "faces", "backbone": "timm/vit", "method": method, "seed": 2}
            given = {"test": f"{method}.npz", "split_seed": 1, "kind": "logits"}
            entries[method] = {**given, **names, **changes}
        config = {"study": "first", "data_root": None, "external": entries}
        plan = Plan(Study(config, home))
        write_record(Path(plan.path), plan.file())
        study = plan.study
        folders = {}
        for key in study.external:
            if key.method in made:
                job = plan.external(key)
                folders[key.method] = tmp_path / job.folder
                import_run(job.spec, study.external_files(key), folders[key.method])
        return folders

    return make


@pytest.fixture
def second(home):
    """The study ``second``, which names a run of the first."""

    def make(run, results="results", **entry):
        runs = {"its": {"run": {"study": "first", **run}, **entry}}
        config = {"study": "second", "results": str(results), "external": runs}
        return Study(config, home)

    return make


def test_a_run_keeps_its_names_and_is_read_where_its_study_left_it(first, second, tmp_path):
    folder = first("ce", head="head.npz")["ce"]
    for results in ("results", tmp_path / "results"):
        study = second({"method": "ce"}, results, calibrators=["fc"])
        assert list(study.runs) == [RunKey("external", "faces", "timm/vit", "ce", 2)]
        files = study.external_files(*study.runs)
        logits = folder / "logits/last"
        expected = [logits / name for name in ("val.parquet", "test.parquet", "head.safetensors")]
        assert [file.resolve() for file in files] == expected


def test_it_may_have_other_names_and_subsets_of_its_validation_rows(first, second):
    first("ce")
    names = {"protocol": "p", "dataset": "d", "method": "mine"}
    study = second({"method": "ce"}, val_rows=[5, 10], val_seeds=[7], **names)
    sizes = {key: run.external["val_rows"] for key, run in study.external.items()}
    assert sizes == {RunKey("p", f"d_n{n}", "timm/vit", "mine", 7): n for n in (5, 10)}
    check_external(study)


def test_the_newest_plan_counts(first, second, refuses):
    first("ce", "ls")
    second({"method": "ls"})
    again = first("ce", scale=2.0)["ce"]
    study = second({"method": "ce"})
    assert again.name in str(study.external_files(*study.runs)[0])
    with refuses(ConfigError, "external.its.run: external/faces/timm+vit/ls/seed2 of study"):
        second({"method": "ls"})


@pytest.mark.parametrize(
    ("run", "entry", "parts"),
    [
        ({}, {}, "external.its.run: 2 runs of study 'first' match, which differ in method; add"),
        ({"method": "lss"}, {}, "'lss' in external.its.run.method: did you mean 'ls'?"),
        ({"seed": 3}, {}, "seed '3' in external.its.run.seed: valid: 2"),
        ({"checkpoint": "best"}, {}, "'best' in external.its.run.checkpoint: valid: last"),
        ({"method": "ls"}, {}, "/ls/seed2 of study 'first' is not finished; run that study"),
        ({"study": "third"}, {}, "'third' does not exist in the folder 'results'; run it"),
        ({"study": "second"}, {}, "external.its.run.study: 'second' is this study"),
        ({"method": "ce"}, {"test": "ce.npz"}, "key 'test' in configuration: external.its"),
        ({"method": "ce"}, {"calibrators": ["fc"]}, "'fc' needs ... export_features"),
        ({"method": "ce"}, {"val_seeds": [1]}, "its.val_seeds has no effect without 'val_rows'"),
    ],
)
def test_mistakes(first, second, refuses, run, entry, parts):
    first("ce")
    with refuses(ConfigError, parts):
        second(run, **entry)


def test_a_damaged_record_is_named(first, second, refuses):
    record = first("ce")["ce"] / "predict.json"
    record.write_text(record.read_text().replace("faces", "places"))
    with refuses(ConfigError, "external.its.run: ", "predict.json has been changed"):
        second({"method": "ce"})


def test_calibrators_that_need_features_are_refused_for_logits_without_them(first, second, refuses):
    first("ce")
    study = second({"method": "ce"}, calibrators=["gc_ts"])
    with refuses(ConfigError, "external.its: 'gc_ts' needs features, which", "test.parquet"):
        check_external(study)


def test_subsets_need_validation_rows_that_may_all_be_used(monkeypatch, refuses):
    key = RunKey("p", "faces", "resnet8", "ce", 1)
    made = external.ExternalRun(
        key=key, disjoint_validation=True, root=Path(), external={"val": "v", "test": "t"}
    )
    monkeypatch.setattr(external, "made_run", lambda *_: made)
    folder = Path("results/second")
    entry = {"run": {"study": "first"}}
    (run,) = external.runs_of("its", OfStudy.model_validate(entry), None, folder, "external.its")
    assert run.disjoint_validation
    with refuses(ConfigError, "external.its.val_rows: p/faces/", "disjoint_validation"):
        rows = OfStudy.model_validate({**entry, "val_rows": [5]})
        external.runs_of("its", rows, None, folder, "external.its")
