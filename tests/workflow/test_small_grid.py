"""One small grid from its configuration to its report: the real workflow that `make test` runs."""

import json
import socket
import subprocess
import sys

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, METHODS, RUN, branch, examples


def metrics_of(repository):
    return pd.read_parquet(repository.root / "results/tiny/metrics.parquet")


def test_files_of_a_study_follow_the_contract(finished):
    results = finished.root / "results"
    for name in ("metrics.parquet", "summary.parquet", "costs.parquet", "report.html"):
        assert (results / "tiny" / name).is_file(), name
    assert list((results / "tiny" / "tables").glob("*.csv"))
    assert list((results / "tiny" / "figures").glob("*.png"))
    files = {
        "train": {"train.json", "model.safetensors", "history.parquet"},
        "predict": {"predict.json", "logits"},
        "calibrate": {"calibrate.json", "metrics.parquet"},
    }
    for job, names in files.items():
        folder = finished.result("tst+mbls", job)
        assert names <= {path.name for path in folder.iterdir()}
        fingerprint = json.loads((folder / f"{job}.json").read_text())["fingerprint"]
        assert folder.name == f"{job}-{fingerprint[:10]}"
        assert len(list((results / "logs" / job).rglob("seed1-*.log"))) == len(METHODS), job
    assert list((finished.root / RUN / "tst+mbls/seed1/fits").rglob("ts-*.safetensors"))


def test_metrics_hold_every_run_and_calibrator_once(finished):
    metrics = metrics_of(finished)
    test = metrics[(metrics["split"] == "test") & (metrics["metric"] == "ece")]
    cells = {(row.method, row.calibrator) for row in test.itertuples()}
    assert cells == {(m, c) for m in METHODS for c in ("none", "ts")}
    assert len(test) == len(cells)


def test_each_number_is_traced_to_its_run_by_fingerprint(finished):
    for (method, seed), rows in metrics_of(finished).groupby(["method", "seed"], observed=True):
        record = json.loads((finished.result(method, "train", seed) / "train.json").read_text())
        assert set(rows["fingerprint"]) == {record["fingerprint"]}


def test_every_stage_records_what_it_did_and_where_and_nothing_secret(finished):
    records = [
        *sorted((finished.root / "results/data").glob("*/prepare.json")),
        *(finished.result("ce", job) / f"{job}.json" for job in ("train", "predict", "calibrate")),
        *(finished.root / "results/tiny/.calgrid").glob("aggregate-*.json"),
    ]
    assert len(records) == 6
    for path in records:
        text = path.read_text()
        record = json.loads(text)
        assert len(record["fingerprint"]) == 16, path
        assert record["seconds"] > 0, path
        assert record["peak_memory_mb"] > 10, path
        facts = {"calgrid", "commit", "python", "numpy", "machine", "cpu", "slurm_job"}
        assert facts <= set(record["environment"]), path
        assert socket.gethostname() not in text, path
        assert str(finished.root) not in text, path


@pytest.mark.parametrize("library", ["pandas", "polars", "duckdb"])
def test_the_one_liners_of_the_documents_read_the_metrics(library, finished):
    code = next(
        block
        for block in examples("python")
        if f"import {library}" in block and "results/digits" in block
    )
    *setup, last = code.strip().splitlines()
    script = "\n".join([*setup, f"print({last})"]).replace("results/digits", "results/tiny")
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=finished.root,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tst" in done.stdout


def test_nothing_is_left_to_do_and_an_edited_loss_plans_its_branch_alone(finished, edit):
    """The method and the second stage that starts from it; comments plan nothing."""
    edit("src/calgrid/losses/mbls.py", '"""', '"""Explained better. ')
    assert (
        finished.plan() == finished.plan("tiny.yaml", "--snakefile", "workflow/Snakefile") == set()
    )
    edit("src/calgrid/losses/mbls.py", "margin: float = 6.0", "margin: float = 7.0")
    assert finished.plan() == branch(*METHODS[1:]) | AGGREGATION
