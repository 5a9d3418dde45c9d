"""Ensembles of trained runs: pooled numbers, their rows, seeds and mistakes."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
from tests.jobs.small import CE, FAMILIES, HOME, calibrate, predicted, small_study, trained
from tests.metrics.cases import softmax

from calgrid.calibrators import build_calibrator
from calgrid.errors import ConfigError, DataError
from calgrid.jobs.ensemble import mean_prediction
from calgrid.jobs.ensemble import run as run_ensemble
from calgrid.metrics.table import OOD_NETWORK
from calgrid.plan.plan import Plan
from calgrid.storage.logits import read_logits, write_logits
from calgrid.storage.publish import Call
from calgrid.storage.records import FILES, PREDICT, listed, read_record, write_record
from calgrid.storage.tables import read_frame
from calgrid.study.runs import ensemble_name
from calgrid.study.study import Study


def test_pooled_probabilities_of_the_worked_example():
    members = [np.array([row]) for row in ((0.9, 0.1), (0.6, 0.4), (0.3, 0.7))]
    np.testing.assert_allclose(softmax(mean_prediction(members, "probability")), [[0.6, 0.4]])
    geometric = softmax(mean_prediction([np.log(row) for row in members], "logit"))
    np.testing.assert_allclose(geometric, [[0.6422471, 0.3577529]], atol=1e-6)
    certain = mean_prediction([np.array([[1.0, 0.0]])], "probability")
    np.testing.assert_allclose(certain, [[0.0, -87.3365]], rtol=1e-5)


@pytest.fixture(scope="module")
def members(data, tmp_path_factory):
    """A study with an ensemble of two seeds, and the folders of its members' logits."""
    config = small_study()
    config["grids"][0] |= {
        "methods": ["ens2(ce)", "ens2(ce,ts)", "ens1(ce)"],
        "seeds": [CE.seed, CE.seed + 1],
        "calibrators": ["none", "ts"],
    }
    plan = Plan(Study(config, HOME))
    folders = []
    for seed in (CE.seed, CE.seed + 1):
        key, run = CE._replace(seed=seed), tmp_path_factory.mktemp("member") / "run"
        trained(plan, data, run, key)
        predicted(plan, data, run, key, families=FAMILIES)
        folders.append(run / "predict")
    return plan, folders


def test_files_hold_the_mean_of_the_members_and_are_written_once(members, tmp_path):
    plan, folders = members
    key = CE._replace(method="ens2(ce)", seed=1)
    pool(plan.ensemble(key).spec, folders, tmp_path / "out")
    made = (tmp_path / "out/predict.json").stat().st_mtime_ns
    pool(plan.ensemble(key).spec, folders, tmp_path / "out")  # it is there already
    assert (tmp_path / "out/predict.json").stat().st_mtime_ns == made
    names = [path.relative_to(tmp_path / "out") for path in (tmp_path / "out").rglob("*.parquet")]
    assert len(names) == len(plan.study.trained[CE].checkpoints) * (
        2 + len(plan.study.evaluations[key].families)
    )
    for name in names:
        pooled, *parts = (read_logits(folder / name) for folder in (tmp_path / "out", *folders))
        expected = np.mean([softmax(part.logits) for part in parts], axis=0)
        np.testing.assert_allclose(softmax(pooled.logits), expected, atol=1e-6)
        np.testing.assert_array_equal(pooled.label, parts[0].label)
    assert pooled.metadata["method"] == "ens2(ce)"
    assert pooled.metadata["fingerprint"] == plan.ensemble(key).fingerprint


def test_members_may_be_calibrated_before(members, tmp_path):
    plan, folders = members
    key = CE._replace(method="ens2(ce,ts)", seed=1)
    pool(plan.ensemble(key).spec, folders, tmp_path / "out")
    calibrated = []
    for folder in folders:
        val, test = (
            read_logits(folder / f"logits/last/{name}.parquet") for name in ("val", "test")
        )
        fitted = build_calibrator("ts").fit(val.logits, val.label)
        calibrated.append(fitted.predict_proba(test.logits))
    pooled = read_logits(tmp_path / "out/logits/last/test.parquet").logits.astype(float)
    np.testing.assert_allclose(softmax(pooled), np.mean(calibrated, axis=0), atol=1e-6)


def test_pooled_probabilities_are_scored_out_of_distribution_without_energy(members, tmp_path):
    plan, folders = members
    key = CE._replace(method="ens2(ce)", seed=1)
    pool(plan.ensemble(key).spec, folders, tmp_path / "predict")
    calibrate(plan.calibrate(key).spec, tmp_path / "predict", tmp_path / "part")
    rows = read_frame(tmp_path / "part/metrics.parquet").query("split == 'ood'")
    assert {"auroc", "auroc_entropy"} <= {*rows["metric"]}
    assert set(OOD_NETWORK).isdisjoint(rows["metric"])


def test_an_ensemble_of_one_is_its_member(members, tmp_path):
    plan, folders = members
    single = plan.ensemble(CE._replace(method="ens1(ce)", seed=1))
    pool(single.spec, folders[:1], tmp_path / "out")
    pooled, member = (
        read_logits(folder / "logits/last/test.parquet").logits.astype(float)
        for folder in (tmp_path / "out", folders[0])
    )
    np.testing.assert_allclose(softmax(pooled), softmax(member), atol=1e-6)


def pool(spec, folders, out):
    run_ensemble(Call(spec, out, tuple(folder / PREDICT for folder in folders)))


def changed(folder, out, change):
    """A copy of a member with other test rows."""
    other = shutil.copytree(folder, out)
    name = "logits/last/test.parquet"
    write_logits(other / name, change(read_logits(other / name)))
    record = read_record(other / "predict.json")
    write_record(other / "predict.json", {**record, FILES: listed(other, record[FILES])})
    return other


def test_members_with_other_rows_or_another_order_of_classes_are_refused(
    members, tmp_path, refuses
):
    plan, folders = members
    spec = plan.ensemble(CE._replace(method="ens2(ce)", seed=1)).spec

    def turned(data):
        return replace(data, label=data.label[::-1].copy())

    other = changed(folders[1], tmp_path / "other", turned)
    with refuses(DataError, "The rows of test in ", "must share their images"):
        pool(spec, [folders[0], other], tmp_path / "out")

    def named(names):
        return lambda data: replace(data, metadata={**data.metadata, "classes": names})

    names = list("abcdefghij")
    first = changed(folders[0], tmp_path / "first", named(names))
    second = changed(folders[1], tmp_path / "second", named(names[::-1]))
    with refuses(DataError, f"{second} has the classes of {first} in another order (class 0 is"):
        pool(spec, [first, second], tmp_path / "out")


def test_groups_are_disjoint_and_numbered(members):
    config = small_study()
    config["grids"][0] |= {"methods": ["ens2(ce)"], "seeds": [7, 3, 5, 9, 4]}
    study = Study(config, HOME)
    found = {key.seed: [run.seed for run in made.members] for key, made in study.ensembles.items()}
    assert found == {1: [3, 4], 2: [5, 7]}
    # members are ordinary runs of the study
    assert {key.seed for key in study.trained if key.method == "ce"} == {3, 4, 5, 7, 9}
    plan = Plan(study)
    for run in plan.manifest()["runs"]:
        if run["key"]["method"] == "ens2(ce)":
            assert run["train"] is None
            assert len(run["members"]) == 2


@pytest.mark.parametrize(
    ("grid", "parts"),
    [
        ({"methods": ["ens3(ce)"]}, ["'ens3(ce)' needs 3 seeds of 'ce', and there are at most 1"]),
        ({"methods": ["ens2(ce"]}, ["'ens2(ce' is no method", "ens3(METHOD,CALIBRATOR)"]),
        ({"methods": ["ens0(ce)"]}, ["'ens0(ce)' is no method"]),
        ({"methods": ["ens1(cee)"]}, ["cee", "did you mean"]),
        ({"methods": ["ens1(ce,tss)"]}, ["tss", "did you mean"]),
        (
            {"methods": ["ens1(ce)"], "calibrators": ["procal_dr"]},
            ["'procal_dr' needs features, which the ensemble 'ens1(ce)' does not have"],
        ),
    ],
)
def test_mistakes_are_reported_before_any_job(grid, parts, refuses):
    config = small_study(protocols={"with_features": {"base": "digits", "export_features": True}})
    config["grids"] = [
        {
            "protocol": "with_features",
            "datasets": ["digits"],
            "backbones": ["resnet8"],
            "seeds": [1],
            **grid,
        }
    ]
    with refuses(ConfigError, *parts):
        Study(config, HOME)


def test_names():
    assert ensemble_name("ens12(maccal+mbls,logit)") == (12, "maccal+mbls", "logit")
    assert ensemble_name("mixup+ls") is None
