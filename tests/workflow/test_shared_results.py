"""One results folder under two calls or studies at once, under another study, and under clocks that
were ahead.

Who computes, who waits and what is planned: training, prediction and calibration only copy
(benchmarks/null_stages.py).
"""

import copy
import os
import shutil
import time
from collections import Counter

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, CONFIG, IDENTITY, METRICS, RUN, changed, null_repository

pytestmark = pytest.mark.workflow
HOUR = 3600
#: of small files Snakemake compares contents first, of those above this many bytes the times alone
BY_TIMES = ("--max-checksum-file-size", "1")


@pytest.fixture(scope="module")
def done_once(finished_once, tmp_path_factory):
    made = null_repository(tmp_path_factory.mktemp("null") / "done", finished_once)
    made.configure(CONFIG)
    made.run("tiny.yaml", METRICS)
    return made


@pytest.fixture
def done(done_once, tmp_path):
    """The grid, finished."""
    return done_once.copy(tmp_path / "done")


@pytest.fixture
def null(finished_once, tmp_path):
    return null_repository(tmp_path / "null", finished_once)


def computed(repository):
    """How often each stage of each run was computed."""
    return Counter((repository.root / "template/computed.txt").read_text().splitlines())


def contents(folder):
    """Bytes and times of all files below a folder, hidden ones left out."""
    files = [path for path in folder.rglob("*") if path.is_file() and ".calgrid" not in path.parts]
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in files}


def put_ahead(paths):
    """As if a node whose clock is an hour ahead had written these files, one second after the
    other.
    """
    begin = time.time() + HOUR
    for second, path in enumerate(paths):
        os.utime(path, (begin + second,) * 2)


def test_two_calls_of_one_study_and_another_study_at_once_compute_each_run_once(null):
    studies = {"tiny": ("ce", "tst"), "other": ("ce", "mbls")}
    for study, methods in studies.items():
        null.configure(changed(study, methods=list(methods), shifts=[]), f"{study}.yaml")
    calls = [(study, f"results/{study}/metrics.parquet") for study in ("tiny", "tiny", "other")]
    started = [null.start(f"{study}.yaml", wanted, "--rerun-incomplete") for study, wanted in calls]
    output = [process.communicate(timeout=900)[0] for process in started]
    ended = [process.returncode for process in started]
    assert ended[2] == 0, output[2]
    assert 0 in ended[:2], output
    runs = {
        f"{stage} {RUN}/{m}/seed1" for stage in ("train", "predict") for m in ("ce", "tst", "mbls")
    }
    times = computed(null)
    assert {stage: times[stage] for stage in runs} == dict.fromkeys(runs, 1)
    for study, wanted in calls[1:]:
        assert null.plan(f"{study}.yaml", wanted, "--rerun-incomplete") == set()
        metrics = pd.read_parquet(null.root / wanted)
        assert not metrics.duplicated(IDENTITY).any()
        assert set(metrics["method"]) == set(studies[study])


def test_a_second_study_trains_and_predicts_nothing_and_leaves_the_first_alone(done):
    first, runs = contents(done.root / "results/tiny"), contents(done.root / "results/runs")
    done.configure(
        changed(
            "other", methods=["ce", "tst+mbls"], calibrators=["none", "ts", "smart"], shifts=[]
        ),
        "o.yaml",
    )
    assert {job.split()[0] for job in done.plan("o.yaml")} <= {"calibrate", *AGGREGATION}
    done.run("o.yaml", "results/other/metrics.parquet")
    assert contents(done.root / "results/tiny") == first
    after = contents(done.root / "results/runs")
    assert {path: after[path] for path in runs} == runs
    # the first study wants another set of shifts; that must not undo anything
    assert done.plan("tiny.yaml", METRICS) == set()
    assert done.plan("o.yaml") == AGGREGATION - {"manifest", "aggregate"}


def test_lost_snakemake_records_cannot_mix_configurations(done):
    """Without its records Snakemake sees no changed parameter; aggregation still refuses the old
    numbers.
    """
    shutil.rmtree(done.root / ".snakemake")
    config = copy.deepcopy(CONFIG)
    config["overrides"] = [{"match": {"method": "mbls"}, "set": {"margin": 10.0}}]
    done.configure(config, "lost.yaml")
    before = contents(done.root / "results/tiny")
    result = done.snakemake(
        "--configfile",
        "lost.yaml",
        "--cores",
        "2",
        "--forcerun",
        "manifest",
        "--until",
        "aggregate",
    )
    log = (done.root / "results/logs/tiny/aggregate.log").read_text()
    assert result.returncode != 0
    assert "belongs to another configuration or code version" in log
    assert log.count("=== calgrid aggregate, ") == 2, (
        "an attempt goes on in the log of those before"
    )
    after = contents(done.root / "results/tiny")
    parts = {path for path in before if "parts" in path.parts}
    assert parts
    assert all(after[path] == before[path] for path in parts)


def test_files_of_a_run_are_there_while_they_are_made_again(done):
    """Snakemake would delete them when the job begins, although another study may be about to read
    them.
    """
    files = [
        done.root / RUN / "mbls/seed1" / name
        for name in ("model.safetensors", "logits/last/test.parquet")
    ]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    process = done.start(
        "tiny.yaml", f"{RUN}/mbls/seed1/predict.json", "--forcerun", f"{RUN}/mbls/seed1/train.json"
    )
    missing = set()
    while process.poll() is None:
        missing |= {path.name for path in files if not path.exists()}
        time.sleep(0.002)
    assert process.returncode == 0, process.communicate()[0]
    assert missing == set()
    for path, (content, written) in zip(files, before, strict=True):
        assert path.read_bytes() == content
        assert path.stat().st_mtime_ns > written, "not made again"


def test_results_of_a_clock_that_was_ahead_make_nothing_again_for_ever(done):
    before = (done.root / METRICS).read_bytes()
    runs = [
        path
        for path in (done.root / RUN).rglob("*")
        if path.is_file() and ".calgrid" not in path.parts
    ]
    in_order = sorted(runs, key=lambda path: path.stat().st_mtime_ns)
    manifests = sorted((done.root / "results/data").glob("*/manifest.json"))
    # Snakemake counts the benchmark of a job among its outputs
    times = [
        path
        for rule in ("data", "train", "predict")
        for path in done.root.glob(f"results/benchmarks/{rule}/**/*.tsv")
    ]
    put_ahead([*manifests, *in_order, *times])
    planned = done.plan("tiny.yaml", METRICS, *BY_TIMES)
    assert not {job for job in planned if job.startswith(("train", "predict", "prepare_data"))}
    done.run("tiny.yaml", METRICS, *BY_TIMES)
    assert done.plan("tiny.yaml", METRICS, *BY_TIMES) == set()
    assert (done.root / METRICS).read_bytes() == before
    # one node's clock was ahead when it trained; the nodes that predicted and calibrated were on
    # time
    put_ahead(
        [done.root / RUN / "tst+mbls/seed1" / name for name in ("model.safetensors", "train.json")]
    )
    expected = {"predict tst+mbls/seed1", "calibrate tst+mbls/seed1"}
    assert done.plan("tiny.yaml", METRICS, *BY_TIMES) - AGGREGATION == expected
    done.run("tiny.yaml", METRICS, *BY_TIMES)
    assert done.plan("tiny.yaml", METRICS, *BY_TIMES) == set()
    assert (done.root / METRICS).read_bytes() == before
