"""The tiny grid through sbatch: what it asks SLURM for, and the same results as without SLURM."""

import re

import pandas as pd
import pytest
from tests.workflow.dag import IDENTITY, RUN, changed

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
METHODS = ("ce", "mbls")
FILES = ("model.safetensors", "history.parquet", "logits/last/test.parquet", "logits/last/ood/photos.parquet")


#: what a site and a study may say: a first attempt whose limit does not hold torch, and --gres in place of --gpus
SITE = (
    "--set-resources",
    "train:mem_mb=250 if attempt == 1 and wildcards.method == 'mbls' else 4000",
    "predict:gpu=0",
    "predict:gres=gpu:1",
)


@pytest.fixture(scope="module")
def planned(new_grid):
    """The grid with the device left open, so that jobs ask for a GPU, and what a dry run says of it."""
    grid = new_grid()
    grid.configure({**changed(methods=list(METHODS)), "device": "auto"})
    shown = grid.snakemake("--profile", "slurm", *SITE, "--configfile", "tiny.yaml", "-n")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return grid, shown.stdout + shown.stderr


@pytest.fixture(scope="module")
def finished(cluster, planned):
    grid, _ = planned
    ended = grid.start(*SITE).wait(timeout=1500)
    assert ended == 0, grid.log() + cluster.logs()
    return grid


def completed(cluster, rule):
    """Jobs of a rule of this grid that ended well; those of another protocol are of other tests."""
    return [
        job for job in cluster.jobs(f"rule_{rule}") if job["JobState"] == "COMPLETED" and "_long_" not in job["Comment"]
    ]


def test_results_are_byte_for_byte_those_of_a_local_run(finished, finished_once):
    runs = [f"{RUN}/{method}/seed1/{name}" for method in METHODS for name in FILES]
    local = finished_once.root / "results/tiny/parts"
    parts = [str(path.relative_to(finished_once.root)) for path in local.rglob("*.parquet")]
    parts = [path for path in parts if set(METHODS) & set(path.split("/"))]
    assert len(parts) >= len(METHODS)
    for path in [*runs, *parts]:
        assert (finished.root / path).read_bytes() == (finished_once.root / path).read_bytes(), path


def test_no_row_is_lost_or_doubled(finished):
    metrics = pd.read_parquet(finished.root / "results/tiny/metrics.parquet")
    assert not metrics.duplicated(IDENTITY).any()
    cells = set(metrics.query("split == 'test' and metric == 'nll'")[["method", "calibrator"]].itertuples(index=False))
    assert cells == {(method, calibrator) for method in METHODS for calibrator in ("none", "ts")}


def test_nothing_is_left_to_do(finished):
    assert finished.plan() == set()
    assert finished.plan("tiny.yaml", "--profile", "slurm") == set()


@pytest.mark.parametrize(
    ("rule", "asked"),
    [
        ("train", {"TresPerJob": "gres:gpu:1"}),
        ("predict", {"TresPerNode": "gres:gpu:1"}),
        ("calibrate", {}),
        ("aggregate", {}),
        ("report", {}),
    ],
)
def test_jobs_that_use_a_network_ask_for_a_gpu_and_no_others(rule, asked, finished, cluster):
    jobs = completed(cluster, rule)
    assert jobs
    for job in jobs:
        assert {name: job[name] for name in ("TresPerJob", "TresPerNode") if name in job} == asked


@pytest.mark.parametrize("rule", ["train", "calibrate", "aggregate"])
def test_a_dry_run_shows_what_is_submitted(rule, planned, finished, cluster):
    shown = re.findall(rf"^rule {rule}:.*?^ +resources: (.*?)$", planned[1], re.MULTILINE | re.DOTALL)
    jobs = completed(cluster, rule)
    asked = {(int(job["MinMemoryNode"][:-1]), job["TimeLimit"], "TresPerJob" in job) for job in jobs}
    told = set()
    for text in shown:
        numbers = dict(re.findall(r"(\w+)=(\d+)", text))
        hours, minutes = divmod(int(numbers["runtime"]), 60)
        told.add((int(numbers["mem_mb"]), f"{hours:02d}:{minutes:02d}:00", numbers.get("gpu") == "1"))
    assert told - {(250, *rest) for _, *rest in told} == asked


def test_too_little_memory_is_named_and_the_next_attempt_gets_more(finished, cluster):
    first, second = cluster.jobs("rule_train_wildcards_quick_digits_resnet8_mbls")
    assert (first["JobState"] in ("FAILED", "OUT_OF_MEMORY"), second["JobState"]) == (True, "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("250M", "4000M")
    told = finished.log().partition(f"SLURM-job '{first['JobId']}' failed")[2]
    assert "The reason: out of memory: each attempt asks for more" in told.partition("Trying to restart job")[0]


def test_a_cluster_without_accounting_is_found_out_and_squeue_asked(finished):
    assert finished.log().count("has no accounting (Slurm accounting storage is disabled): squeue is asked") == 1


def test_both_nodes_were_used(finished, cluster):
    assert {job["NodeList"] for job in completed(cluster, "")} == {"calgrid1", "calgrid2"}
