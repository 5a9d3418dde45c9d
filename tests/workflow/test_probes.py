"""Probes in a real grid: planned by run, drawn in the report, shared by studies, and nobody else's business."""

import copy

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, CONFIG

pytestmark = pytest.mark.workflow
ATTACK = {"base": "margin_attack", "samples": 30, "steps": 8, "bisections": 4}


def probing(study, methods=("ce",), probes=("few", "prototypes"), **variants):
    config = {**copy.deepcopy(CONFIG), "study": study, "probes": {"few": {**ATTACK, **variants}}}
    config["grids"][0].update(methods=list(methods), calibrators=["none"], shifts=[], probes=list(probes))
    return config


def test_probes_are_planned_beside_finished_runs_run_once_and_drawn(twin):
    twin.configure(probing("probing"), "probing.yaml")
    assert twin.plan("probing.yaml") == {"probe ce/seed1", "calibrate ce/seed1"} | AGGREGATION
    twin.run("probing.yaml")
    assert twin.plan("probing.yaml") == set()
    run = twin.root / "results/runs/quick/digits/resnet8/ce/seed1"
    assert {path.name for path in (run / "probes").iterdir()} == {
        f"{name}.{suffix}" for name in ("few", "prototypes") for suffix in ("parquet", "json")
    }
    figures = {path.name for path in (twin.root / "results/probing/figures").glob("*.png")}
    assert {"fgsm_margin_digits_resnet8.png", "prototype_angles_digits_resnet8.png"} <= figures
    report = (twin.root / "results/probing/report.html").read_text()
    assert "Attack distance by margin" in report
    costs = pd.read_parquet(twin.root / "results/probing/costs.parquet")
    assert set(costs.loc[costs["stage"] == "probe", "item"]) == {"few", "prototypes"}
    # a study with other probes measures what is new, and leaves the tables that are there as they are
    before = {path: path.read_bytes() for path in (run / "probes").iterdir()}
    twin.configure(probing("other", probes=["prototypes", "profiles"]), "other.yaml")
    twin.run("other.yaml", "results/other/figures")
    assert {path: path.read_bytes() for path in before} == before
    assert (run / "probes/profiles.parquet").is_file()
    # an option of a probe, or its source, plans that probe only
    twin.configure(probing("probing", samples=31), "probing.yaml")
    assert twin.plan("probing.yaml") == {"probe ce/seed1"} | AGGREGATION
    source = twin.root / "src/calgrid/probes/profiles.py"
    source.write_text(source.read_text().replace('"q10": 0.1', '"q10": 0.2'))
    assert twin.plan("other.yaml", "results/other/figures") == {"probe ce/seed1"} | AGGREGATION - {"tables", "report"}
    assert twin.plan() == set()
