"""Job probe: a table and a record beside the logits, of the run that they say, and the same bytes
again.
"""

import json
import shutil

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from tests.jobs.small import CE, HOME, key, predicted, small_study, trained

from calgrid.components import registry
from calgrid.errors import StateError
from calgrid.jobs.probe import run as run_probe
from calgrid.plan.plan import Plan
from calgrid.storage.logits import read_logits
from calgrid.storage.publish import Call
from calgrid.storage.records import MANIFEST, PROBE_TABLE
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study

#: every probe, small
PROBES = {
    "attack": {"base": "margin_attack", "samples": 40, "steps": 12, "bisections": 6},
    "masks": {"base": "masking", "ratios": [0.0, 0.5], "draws": 2},
    "plane": {"base": "embedding", "points": 100, "perplexity": 5, "iterations": 250},
    "angles": {"base": "prototypes"},
    "shapes": {"base": "profiles", "images": 20},
    "wrong": {"base": "misjudged", "images": 4},
}


def study_with_probes(**changes):
    config = small_study(probes=PROBES, **changes)
    config["grids"][0] |= {
        "methods": ["ce", "tst"],
        "probes": [name for name in PROBES if name != "masks"],
    }
    config["grids"].append({**config["grids"][0], "methods": ["ce"], "probes": ["masks"]})
    return config


@pytest.fixture(scope="module")
def probing():
    return Plan(Study(study_with_probes(), HOME))


@pytest.fixture(scope="module")
def run(run, probing, data):
    for name in PROBES:
        measure(probing, data, run, name)
    return run


def measure(plan, data, out, name, method="ce"):
    model = out / "train/model.safetensors"
    spec = plan.probe(key(method), name).spec
    run_probe(Call(spec, out / name, (model, data / "digits" / MANIFEST), device="cpu"))


def table_of(run, plan, name):
    return read_frame(run / name / PROBE_TABLE, fingerprint=plan.probe(CE, name).fingerprint)


def test_every_registered_probe_is_tried_here():
    assert {variant["base"] for variant in PROBES.values()} == set(registry.descriptions("probe"))


@pytest.mark.parametrize("name", PROBES)
def test_each_checkpoint_is_measured_and_the_footer_says_of_what(run, probing, name):
    table = table_of(run, probing, name)
    assert set(table["checkpoint"]) == {"best", "last"}
    assert table.groupby("checkpoint").size().nunique() == 1
    assert not table.isna().any().any()
    footer = json.loads(pq.read_table(run / name / PROBE_TABLE).schema.metadata[b"calgrid"])
    assert footer["probe"] == probing.study.probes.named(name, "")
    expected = {"dataset": "digits", "method": "ce", "seed": 1, "split": "test"}
    assert {part: footer[part] for part in expected} == expected
    record = json.loads((run / name / "probe.json").read_text())
    assert record["spec"] == probing.probe(CE, name).spec
    assert record["seconds"] > 0
    assert record["environment"]["device"] == "cpu"


@pytest.mark.parametrize("name", PROBES)
def test_measuring_again_gives_the_same_bytes(run, probing, data, name):
    path, record = run / name / PROBE_TABLE, run / name / "probe.json"
    before, made = path.read_bytes(), record.stat().st_mtime_ns
    measure(probing, data, run, name)
    assert record.stat().st_mtime_ns == made  # it is there already
    record.unlink()
    measure(probing, data, run, name)
    assert record.is_file()
    assert path.read_bytes() == before


def test_numbers_are_those_of_the_exported_logits(run, probing):
    for checkpoint in ("best", "last"):
        logits = read_logits(run / f"predict/logits/{checkpoint}/test.parquet")
        top = np.sort(logits.logits.astype(np.float64), axis=1)
        attack = table_of(run, probing, "attack").query("checkpoint == @checkpoint")
        assert attack["margin"].to_numpy() == pytest.approx(
            (top[:, -1] - top[:, -2])[attack["index"]], abs=1e-3
        )
        assert (attack["label"].to_numpy() == logits.label[attack["index"]]).all()
        whole = table_of(run, probing, "masks").query("checkpoint == @checkpoint and ratio == 0")
        accuracy = (logits.logits.argmax(axis=1) == logits.label).mean()
        assert whole["accuracy"].to_numpy() == pytest.approx(accuracy)


def test_a_probe_sees_the_test_images_that_were_scored(run, probing, data, tmp_path):
    config = study_with_probes()
    config["protocols"]["quick"]["test_normalisation"] = {"digits": "imagenet"}
    other = Plan(Study(config, HOME))
    shutil.copytree(run / "train", tmp_path / "train")
    predicted(other, data, tmp_path)
    measure(other, data, tmp_path, "attack")
    attack, before = (
        table_of(*where, "attack").query("checkpoint == 'last'")
        for where in ((tmp_path, other), (run, probing))
    )
    top = np.sort(
        read_logits(tmp_path / "predict/logits/last/test.parquet").logits.astype(np.float64), axis=1
    )
    assert attack["margin"].to_numpy() == pytest.approx(
        (top[:, -1] - top[:, -2])[attack["index"]], abs=1e-3
    )
    assert not np.allclose(attack["margin"], before["margin"])


def test_a_second_stage_is_measured_by_its_own_head(run, probing, data, tmp_path):
    trained(probing, data, tmp_path, key("tst"), first_stage=run / "train/model.safetensors")
    for name in ("attack", "angles", "shapes"):
        measure(probing, data, tmp_path, name, method="tst")
    angles = pd.read_parquet(tmp_path / "angles" / PROBE_TABLE)
    of_first = pd.read_parquet(run / "angles" / PROBE_TABLE).query("checkpoint == 'best'")
    own = angles[angles["checkpoint"] == angles["checkpoint"].iloc[0]]
    for of, same in (("features", True), ("head", False)):
        mine, theirs = (each.loc[each["of"] == of, "angle"].to_numpy() for each in (own, of_first))
        assert np.allclose(mine, theirs, atol=1e-3) == same, of


def test_a_model_of_another_run_is_refused_before_it_is_measured(run, probing, data, tmp_path):
    spec = {**probing.probe(CE, "angles").spec, "run_fingerprint": "0" * 16}
    with pytest.raises(StateError, match="0000000000000000"):
        reads = run / "train/model.safetensors", data / "digits" / MANIFEST
        run_probe(Call(spec, tmp_path / "out", reads, device="cpu"))
    assert not (tmp_path / "out").exists()
