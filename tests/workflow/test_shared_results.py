"""One results folder under two studies at once, and under clocks that were ahead."""

import os
import time

import pandas as pd
import pytest
from tests.workflow.dag import AGGREGATION, Repository
from tests.workflow.test_runs import METRICS, RUN, small, start

pytestmark = pytest.mark.workflow
HOUR = 3600
#: of small files Snakemake compares contents first, of those above this many bytes the times alone
BY_TIMES = ("--max-checksum-file-size", "1")
IDENTITY = ["method", "seed", "calibrator", "split", "shift", "severity", "metric"]


def put_ahead(paths):
    """As if a node whose clock is an hour ahead had written these files, one second after the other."""
    begin = time.time() + HOUR
    for second, path in enumerate(paths):
        os.utime(path, (begin + second,) * 2)


def test_two_studies_at_once_share_their_runs(tmp_path, finished):
    both = {"tiny": ("ce", "tst"), "other": ("ce", "mbls")}
    (tmp_path / "repository").mkdir()
    repository = Repository(tmp_path / "repository")
    for study, methods in both.items():
        repository.configure(small(study, methods), f"{study}.yaml")
    started = {
        study: start(repository, f"{study}.yaml", f"results/{study}/metrics.parquet", "--rerun-incomplete")
        for study in both
    }
    output = {study: process.communicate(timeout=900)[0] for study, process in started.items()}
    assert {study: process.returncode for study, process in started.items()} == {"tiny": 0, "other": 0}, output
    for study, methods in both.items():
        wanted = f"results/{study}/metrics.parquet"
        assert repository.plan(f"{study}.yaml", wanted, "--rerun-incomplete") == set()
        metrics = pd.read_parquet(repository.root / wanted)
        assert not metrics.duplicated(IDENTITY).any()
        assert set(metrics["method"]) == set(methods)
    for method in ("ce", "mbls", "tst"):
        path = f"{RUN}/{method}/seed1/model.safetensors"
        assert (repository.root / path).read_bytes() == (finished.root / path).read_bytes(), path


def test_files_of_a_run_are_there_while_they_are_made_again(twin):
    """Snakemake would delete them when the job begins, although another study may be about to read them."""
    files = [twin.root / RUN / "mbls/seed1" / name for name in ("model.safetensors", "logits/last/test.parquet")]
    before = [(path.read_bytes(), path.stat().st_mtime_ns) for path in files]
    process = start(twin, "tiny.yaml", f"{RUN}/mbls/seed1/predict.json", "--forcerun", f"{RUN}/mbls/seed1/train.json")
    missing = set()
    while process.poll() is None:
        missing |= {path.name for path in files if not path.exists()}
        time.sleep(0.002)
    assert process.returncode == 0, process.communicate()[0]
    assert missing == set()
    for path, (content, written) in zip(files, before, strict=True):
        assert path.read_bytes() == content
        assert path.stat().st_mtime_ns > written, "not made again"


def test_results_of_a_clock_that_was_ahead_make_nothing_again_for_ever(twin):
    before = (twin.root / METRICS).read_bytes()
    runs = [path for path in (twin.root / RUN).rglob("*") if path.is_file() and ".calgrid" not in path.parts]
    in_order = sorted(runs, key=lambda path: path.stat().st_mtime_ns)
    manifests = sorted((twin.root / "results/data").glob("*/manifest.json"))
    # Snakemake counts the benchmark of a job among its outputs
    times = [
        path for rule in ("data", "train", "predict") for path in twin.root.glob(f"results/benchmarks/{rule}/**/*.tsv")
    ]
    put_ahead([*manifests, *in_order, *times])
    planned = twin.plan("tiny.yaml", METRICS, *BY_TIMES)
    assert not {job for job in planned if job.startswith(("train", "predict", "prepare_data"))}
    twin.run("tiny.yaml", METRICS, *BY_TIMES)
    assert twin.plan("tiny.yaml", METRICS, *BY_TIMES) == set()
    assert (twin.root / METRICS).read_bytes() == before


def test_an_input_that_is_newer_than_what_was_made_of_it_is_used_once_more_and_no_more(twin):
    """One node's clock was ahead when it trained; the nodes that predicted and calibrated were on time."""
    before = (twin.root / METRICS).read_bytes()
    put_ahead([twin.root / RUN / "tst+mbls/seed1/train.json"])
    expected = {"predict tst+mbls/seed1", "calibrate tst+mbls/seed1"}
    assert twin.plan("tiny.yaml", METRICS, *BY_TIMES) - AGGREGATION == expected
    twin.run("tiny.yaml", METRICS, *BY_TIMES)
    assert twin.plan("tiny.yaml", METRICS, *BY_TIMES) == set()
    assert (twin.root / METRICS).read_bytes() == before
