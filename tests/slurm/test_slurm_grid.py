"""The tiny grid through sbatch: what it asks SLURM for, and the same results as without SLURM."""

import pandas as pd
import pytest
from tests.workflow.dag import CONFIG

pytestmark = [pytest.mark.workflow, pytest.mark.slurm, pytest.mark.timeout(1800)]
METHODS = ("ce", "tst")
RUNS = "results/runs/quick/digits/resnet8"
FILES = ("model.safetensors", "history.parquet", "logits/last/test.parquet", "logits/last/ood/photos.parquet")


@pytest.fixture(scope="module")
def finished(cluster, new_grid):
    """The grid on the cluster, with the device left open, so that jobs ask for a GPU."""
    grid = new_grid()
    block = {**CONFIG["grids"][0], "methods": list(METHODS)}
    grid.configure({**CONFIG, "device": "auto", "grids": [block]})
    ended = grid.start().wait(timeout=1500)
    assert ended == 0, grid.log() + cluster.logs()
    return grid


def test_results_are_byte_for_byte_those_of_a_local_run(finished, finished_once):
    runs = [f"{RUNS}/{method}/seed1/{name}" for method in METHODS for name in FILES]
    local = finished_once.root / "results/tiny/parts"
    parts = [str(path.relative_to(finished_once.root)) for path in local.rglob("*.parquet")]
    parts = [path for path in parts if set(METHODS) & set(path.split("/"))]
    assert len(parts) >= len(METHODS)
    for path in [*runs, *parts]:
        assert (finished.root / path).read_bytes() == (finished_once.root / path).read_bytes(), path


def test_no_row_is_lost_or_doubled(finished):
    metrics = pd.read_parquet(finished.root / "results/tiny/metrics.parquet")
    identity = ["method", "seed", "calibrator", "split", "shift", "severity", "metric"]
    assert not metrics.duplicated(identity).any()
    cells = set(metrics.query("split == 'test' and metric == 'nll'")[["method", "calibrator"]].itertuples(index=False))
    assert cells == {(method, calibrator) for method in METHODS for calibrator in ("none", "ts")}


def test_nothing_is_left_to_do(finished):
    assert finished.plan() == set()
    assert finished.plan("tiny.yaml", "--profile", "slurm") == set()


@pytest.mark.parametrize(
    ("rule", "gpu"), [("train", True), ("predict", True), ("calibrate", False), ("aggregate", False), ("report", False)]
)
def test_jobs_that_use_a_network_ask_for_a_gpu_and_no_others(rule, gpu, finished, cluster):
    jobs = cluster.jobs(f"rule_{rule}")
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    assert {job.get("TresPerJob") for job in jobs} == {"gres:gpu:1" if gpu else None}


def test_both_nodes_were_used(finished, cluster):
    assert {job["NodeList"] for job in cluster.jobs("rule_")} == {"calgrid1", "calgrid2"}
