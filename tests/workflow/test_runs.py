"""Whole grids: files of the contract, studies beside each other, kills, and two controllers at once."""

import copy
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, CONFIG, HOME, Repository, jobs

from calgrid.configuration.jobs import GPU_DEVICES

pytestmark = pytest.mark.workflow
RUN = "results/runs/quick/digits/resnet8"
METRICS = "results/tiny/metrics.parquet"


def small(study, methods=("ce", "tst"), **grid):
    config = {**copy.deepcopy(CONFIG), "study": study}
    config["grids"][0].update({"methods": list(methods), "calibrators": ["none"], "shifts": [], **grid})
    return config


def contents(folder):
    """Bytes and times of all files below a folder, hidden ones left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".calgrid" not in path.parts]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def test_files_of_a_study_follow_the_contract(finished):
    results = finished.root / "results"
    for name in ("metrics.parquet", "summary.parquet", "costs.parquet", "report.html", "manifest.json"):
        assert (results / "tiny" / name).is_file(), name
    assert list((results / "tiny" / "tables").glob("*.csv"))
    assert list((results / "tiny" / "figures").glob("*.png"))
    run = finished.root / RUN / "tst+mbls" / "seed1"
    names = {"model.safetensors", "history.parquet", "train.json", "predict.json", "logits", "calibrators"}
    assert names <= {path.name for path in run.iterdir()}


def test_metrics_hold_every_run_and_calibrator_once(finished):
    metrics = pd.read_parquet(finished.root / "results/tiny/metrics.parquet")
    test = metrics[(metrics["split"] == "test") & (metrics["metric"] == "ece")]
    cells = {(row.method, row.calibrator) for row in test.itertuples()}
    assert cells == {(m, c) for m in ("ce", "mbls", "tst", "tst+mbls") for c in ("none", "ts")}
    assert len(test) == len(cells)


def test_each_number_is_traced_to_its_run_by_fingerprint(finished):
    metrics = pd.read_parquet(finished.root / "results/tiny/metrics.parquet")
    for (method, seed), rows in metrics.groupby(["method", "seed"], observed=True):
        record = json.loads((finished.root / RUN / method / f"seed{seed}" / "train.json").read_text())
        assert set(rows["fingerprint"]) == {record["fingerprint"]}


def test_every_stage_records_what_it_did_and_where_and_nothing_secret(finished):
    part = finished.root / "results/tiny/parts/quick/digits/resnet8/ce/seed1"
    run = finished.root / RUN / "ce" / "seed1"
    records = [
        *sorted((finished.root / "results/data").glob("*/prepare.json")),
        run / "train.json",
        run / "predict.json",
        part / "calibrate.json",
        finished.root / "results/tiny/aggregate.json",
    ]
    assert len(records) == 6
    for path in records:
        text = path.read_text()
        record = json.loads(text)
        fingerprint = record.get("fingerprint", record["spec"].get("fingerprint", ""))
        assert len(fingerprint) == 16, path
        assert record["seconds"] > 0, path
        assert record["peak_memory_mb"] > 10, path
        assert {"calgrid", "commit", "python", "numpy", "machine", "cpu", "slurm_job"} <= set(record["environment"]), (
            path
        )
        assert socket.gethostname() not in text, path
        assert str(finished.root) not in text, path


def test_every_job_leaves_a_log_and_a_benchmark(finished):
    for rule in ("train", "predict"):
        for suffix, folder in (("log", "logs"), ("tsv", "benchmarks")):
            files = list((finished.root / "results" / folder / rule).rglob(f"*.{suffix}"))
            assert len(files) == 4, (rule, folder)


def test_a_second_study_trains_and_predicts_nothing_and_leaves_the_first_alone(twin):
    finished = twin
    first = contents(finished.root / "results" / "tiny")
    runs = contents(finished.root / "results" / "runs")
    finished.configure(small("other", ["ce", "tst+mbls"], calibrators=["none", "ts", "smart"]), "other.yaml")
    planned = finished.plan("other.yaml")
    assert {job.split()[0] for job in planned} <= {"calibrate", *AGGREGATION}
    finished.run("other.yaml", "results/other/metrics.parquet")
    assert contents(finished.root / "results" / "tiny") == first
    after = contents(finished.root / "results" / "runs")
    assert {path: after[path] for path in runs} == runs
    # the first study wants another set of shifts; that must not undo anything
    assert finished.plan() == set()
    assert finished.plan("other.yaml") == {"tables", "figures", "report"}


def test_lost_snakemake_records_cannot_mix_configurations(twin):
    """Without its records Snakemake sees no changed parameter; aggregation still refuses the old numbers."""
    shutil.rmtree(twin.root / ".snakemake")
    config = copy.deepcopy(CONFIG)
    config["overrides"] = [{"match": {"method": "mbls"}, "set": {"margin": 10.0}}]
    twin.configure(config, "lost.yaml")
    before = contents(twin.root / "results" / "tiny")
    result = twin.snakemake(
        "--configfile", "lost.yaml", "--cores", "2", "--forcerun", "manifest", "--until", "aggregate"
    )
    log = (twin.root / "results/logs/tiny/aggregate.log").read_text()
    assert result.returncode != 0
    assert "made with another configuration or code version" in log
    assert log.count("=== calgrid aggregate, ") == 2, "an attempt goes on in the log of those before"
    changed = contents(twin.root / "results" / "tiny")
    parts = {path for path in before if "parts" in path.parts}
    assert parts
    assert all(changed[path] == before[path] for path in parts)


@pytest.fixture
def fresh(tmp_path):
    return Repository(tmp_path)


def start(repository, config, *arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "snakemake", "--configfile", config, "--cores", "2", "--nolock", *arguments],
        cwd=repository.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def test_a_killed_grid_ends_with_the_same_bytes(fresh, finished):
    fresh.configure(small("tiny"))
    process = start(fresh, "tiny.yaml", METRICS)
    deadline = time.monotonic() + 300
    while not list(fresh.root.glob(f"{RUN}/*/seed1/.calgrid/train.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # controller and jobs at once, as a node that goes down
    process.wait()
    fresh.run("tiny.yaml", METRICS, "--nolock", "--rerun-incomplete")
    assert fresh.plan("tiny.yaml", METRICS) == set()
    logs = [path.read_text() for path in fresh.root.glob("results/logs/train/**/*.log")]
    assert max(log.count("=== calgrid train, ") for log in logs) == 2, "the killed attempt's log is kept"
    for method in ("ce", "tst"):
        for name in ("model.safetensors", "history.parquet", "logits/last/test.parquet"):
            path = f"{RUN}/{method}/seed1/{name}"
            assert (fresh.root / path).read_bytes() == (finished.root / path).read_bytes(), path


def test_two_controllers_at_once_run_each_run_once(fresh, finished):
    fresh.configure(small("tiny", ["ce", "tst"]))
    both = [start(fresh, "tiny.yaml", METRICS, "--rerun-incomplete") for _ in range(2)]
    output = [process.communicate(timeout=900)[0] for process in both]
    ended = [process.returncode for process in both]
    assert 0 in ended, output
    assert fresh.plan("tiny.yaml", METRICS, "--rerun-incomplete") == set()
    for method in ("ce", "tst"):
        path = f"{RUN}/{method}/seed1/model.safetensors"
        assert (fresh.root / path).read_bytes() == (finished.root / path).read_bytes(), path
    metrics = pd.read_parquet(fresh.root / METRICS)
    identity = ["method", "seed", "calibrator", "split", "shift", "severity", "metric"]
    assert not metrics.duplicated(identity).any()


def test_external_logits_enter_the_same_dag(fresh, finished):
    source = finished.root / RUN / "ce/seed1/logits/last"
    common = {"kind": "logits", "calibrators": ["none", "ts"], "dataset": "digits"}
    external = {
        "with_val": {"val": str(source / "val.parquet"), "test": str(source / "test.parquet"), **common},
        "split": {"test": str(source / "test.parquet"), "split_seed": 3, "method": "split", **common},
    }
    with_bad = {**external, "bad": {"test": "bad.npz", "split_seed": 3, "method": "bad", **common}}
    np.savez(fresh.root / "bad.npz", logits=np.full((30, 10), np.nan), label=np.arange(30) % 10)
    fresh.configure({"study": "brought", "external": with_bad, "statistics": {"bootstrap": 50}}, "brought.yaml")
    failed = fresh.snakemake("--configfile", "brought.yaml", "--cores", "2", "--keep-going")
    assert failed.returncode == 1
    begin, _, ending = failed.stderr.partition("\n1 job failed:\n")
    assert "The reason: calgrid import: bad.npz: 30 rows of logits hold NaN or infinity" in begin
    assert ending.startswith(
        "  results/logs/import/external/digits/unknown/bad/seed0.log\n    calgrid import: bad.npz: 30 rows"
    )
    assert "Not made because of that: aggregate, calibrate, figures, report, tables.\n" in ending
    # the advice for a report of the others, followed
    assert "take them out of the configuration: no other is made again" in ending
    fresh.configure({"study": "brought", "external": external, "statistics": {"bootstrap": 50}}, "brought.yaml")
    result = fresh.run("brought.yaml")
    assert jobs(result.stdout + result.stderr) == AGGREGATION
    metrics = pd.read_parquet(fresh.root / "results/brought/metrics.parquet").query("split == 'test'")
    ours = pd.read_parquet(finished.root / "results/tiny/metrics.parquet").query("split == 'test' and method == 'ce'")

    def value(frame, method, calibrator):
        rows = frame[(frame["method"] == method) & (frame["calibrator"] == calibrator) & (frame["metric"] == "nll")]
        return rows["value"].item()

    for calibrator in ("none", "ts"):
        assert value(metrics, "ce", calibrator) == pytest.approx(value(ours, "ce", calibrator), rel=1e-12)
    sizes = metrics.groupby("method", observed=True)["n_samples"].first().to_dict()
    assert sizes == {"ce": 1200, "split": 600}
    assert (fresh.root / "results/brought/report.html").is_file()
    assert fresh.plan("brought.yaml") == set()


def test_the_working_directory_may_be_elsewhere(finished, tmp_path):
    result = finished.snakemake("-n", "--cores", "2", "--directory", str(tmp_path))
    assert result.returncode == 0, result.stderr
    assert "train" in result.stdout + result.stderr


def test_folders_with_a_space_in_their_names(fresh):
    fresh.configure({**small("tiny", ["ce"], calibrators=["none", "ts"]), "results": "my results"})
    fresh.run()
    assert (fresh.root / "my results/tiny/report.html").is_file()
    assert fresh.plan() == set()


def test_the_profile_of_the_call_says_where_jobs_run_also_in_a_dry_run(fresh):
    pytest.importorskip("snakemake_executor_plugin_slurm")
    fresh.configure({**small("tiny", ["ce"]), "device": "cuda"})
    # --directory: the profile's place is relative to where Snakemake is called
    call = ("--profile", "slurm", "--configfile", "tiny.yaml", "-n", "--cores", "2", "--directory", "elsewhere")
    result = fresh.snakemake(*call)
    assert result.returncode == 0, result.stdout + result.stderr
    asked = re.findall(r"^rule (\w+):$.*?^ +resources: (.*?)$", result.stdout + result.stderr, re.MULTILINE | re.DOTALL)
    assert {rule for rule, resources in asked if "gpu=1" in resources} == {"train", "predict"}
    if any(map(os.path.exists, GPU_DEVICES)):
        pytest.skip("this machine has a GPU")
    here = fresh.snakemake("--configfile", "tiny.yaml", "-n", "--cores", "2")
    assert "this machine has no GPU" in here.stdout + here.stderr


def test_the_workflow_is_lint_free():
    result = subprocess.run(
        [sys.executable, "-m", "snakemake", "--lint"], cwd=HOME, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
