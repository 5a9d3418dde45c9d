"""What clusters do to jobs: each run goes on from its last resume state and ends with the undisturbed bytes."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
from tests.slurm.cluster import wait_for
from tests.workflow.dag import CONFIG

from calgrid.storage.locks import _process_start

pytestmark = [pytest.mark.workflow, pytest.mark.slurm, pytest.mark.timeout(1800)]
RUNS = "results/runs/long/digits/resnet8"
METRICS = "results/tiny/metrics.parquet"
FILES = ("model.safetensors", "history.parquet", "logits/last/test.parquet")
#: a resume state every half second
OFTEN = {"CALGRID_RESUME_SECONDS": "0.5"}

LONG = {
    **CONFIG,
    "protocols": {"long": {"base": "digits", "epochs": 300}},
    "grids": [
        {
            "protocol": "long",
            "datasets": ["digits"],
            "backbones": ["resnet8"],
            "methods": ["ce", "mbls"],
            "seeds": [1],
            "calibrators": ["none", "ts"],
        }
    ],
}


class Run:
    """One run of a grid and the SLURM job that trains it."""

    def __init__(self, grid, cluster, method):
        self.grid, self.cluster, self.method = grid, cluster, method
        self.folder = grid.root / RUNS / method / "seed1"
        self.comment = f"rule_train_wildcards_long_digits_resnet8_{method}_1"

    def progress(self):
        """The running job, once it has written a resume state."""
        wait_for(lambda: self.cluster.jobs(self.comment), f"a job of {self.method}")
        begin = time.time()

        def saved():
            job = self.cluster.jobs(self.comment)[-1]
            if job["JobState"] == "PENDING" and job["Restarts"] != "0":
                # else it is put off for two minutes; refused if it has started meanwhile
                self.cluster.try_command("scontrol", "update", f"JobId={job['JobId']}", "StartTime=now")
            if job["JobState"] != "RUNNING":
                return None
            states = list(self.folder.glob(".calgrid/train/*.partial/resume.pt"))
            with contextlib.suppress(FileNotFoundError):  # it is replaced while we look
                return job if any(state.stat().st_mtime > begin for state in states) else None

        return wait_for(saved, f"a resume state of {self.method}\n{self.grid.log()}")

    def writer(self):
        """Process that holds the run's lock."""
        return json.loads((self.folder / ".calgrid/train.lock").read_text())["pid"]

    def requeued(self, job, writer):
        """Wait until SLURM has put the job back into its queue and its process has ended.

        A process can outlive its job, and the state that it then saves would pass for that of the next start.
        """
        wait_for(lambda: self.cluster.job(job)["Restarts"] != "0", f"the requeueing of {self.method}")
        wait_for(lambda: not _process_start(writer), f"the end of process {writer} of {self.method}")

    def log(self):
        """What the training has said; Snakemake removes it before the next attempt."""
        path = self.grid.root / f"results/logs/train/long/digits/resnet8/{self.method}/seed1.log"
        return path.read_text() if path.is_file() else ""

    def record(self):
        return json.loads((self.folder / "train.json").read_text())


def cancel(cluster, run):
    """``scancel``: the job fails, Snakemake tries again."""
    job = run.progress()
    cluster.command("scancel", job["JobId"])
    wait_for(lambda: cluster.job(job)["JobState"] == "CANCELLED", "the cancelled job")


def warn(cluster, run):
    """What ``slurm_extra: --signal=USR1@30`` does before a time limit."""
    job = run.progress()
    cluster.command("scancel", "--signal=USR1", job["JobId"])
    wait_for(lambda: cluster.job(job)["JobState"] == "FAILED", "the warned job")


def preempt(cluster, run):
    """A job of a partition of higher priority takes the node; SLURM puts ours back into the queue."""
    job, writer = run.progress(), run.writer()
    options = ("--parsable", "--partition=urgent", f"--nodelist={job['NodeList']}", "--output=/dev/null", "--mem=10")
    cluster.command("sbatch", *options, "--wrap", "true")
    run.requeued(job, writer)


def lose_node(cluster, run):
    """The node goes down and comes back; SLURM puts the job back into the queue."""
    job, writer = run.progress(), run.writer()
    node = f"NodeName={job['NodeList']}"
    cluster.command("scontrol", "update", node, "State=DOWN", "Reason=test")
    run.requeued(job, writer)
    cluster.command("scontrol", "update", node, "State=RESUME")


def reach_time_limit(cluster, run):
    """The limit passes while the process is frozen, so that it cannot end before."""
    job = run.progress()
    os.kill(run.writer(), signal.SIGSTOP)
    cluster.command("scontrol", "update", f"JobId={job['JobId']}", "EndTime=now+1")
    wait_for(lambda: cluster.job(job)["JobState"] == "TIMEOUT", "the time limit")


@pytest.fixture(scope="module")
def reference(undisturbed):
    """The same grid on this machine without SLURM."""
    undisturbed.configure(LONG)
    undisturbed.run("tiny.yaml", METRICS)
    return undisturbed


def test_runs_survive_what_clusters_do(cluster, grid, reference):
    grid.configure(LONG)
    ce, mbls = (Run(grid, cluster, method) for method in ("ce", "mbls"))
    first = grid.start(METRICS, "--retries", "2", **OFTEN)
    for event, run in [(cancel, ce), (preempt, mbls), (lose_node, ce), (reach_time_limit, mbls), (warn, ce)]:
        event(cluster, run)
    # the controller dies while a job of its own runs; a second one is called at once
    orphan = ce.progress()
    os.kill(ce.writer(), signal.SIGSTOP)  # as slow as it takes for the second controller's job to meet it
    first.kill()
    first.wait()
    wait_for((mbls.folder / "train.json").is_file, "the end of mbls")
    second = grid.start(METRICS, **OFTEN)
    refusal = f"is being written by process {ce.writer()}"
    wait_for(lambda: refusal in ce.log(), "the second writer that waits for the first")
    assert f"SLURM job {orphan['JobId']}" in ce.log()
    assert cluster.job(orphan)["JobState"] == "RUNNING"
    os.kill(ce.writer(), signal.SIGCONT)
    assert second.wait(timeout=900) == 0, grid.log()

    # a requeued job may be interrupted a second time by the end of its first start
    assert (ce.record()["interruptions"] >= 3, mbls.record()["interruptions"] >= 2) == (True, True), "started anew"
    assert ce.record()["environment"]["slurm_job"] == orphan["JobId"], "trained once, by the job that was left alone"
    for method in ("ce", "mbls"):
        for name in FILES:
            path = f"{RUNS}/{method}/seed1/{name}"
            assert (grid.root / path).read_bytes() == (reference.root / path).read_bytes(), path
    assert (grid.root / METRICS).read_bytes() == (reference.root / METRICS).read_bytes()
    metrics = pd.read_parquet(grid.root / METRICS)
    identity = ["method", "seed", "calibrator", "split", "shift", "severity", "metric"]
    assert not metrics.duplicated(identity).any()


def test_too_little_memory_is_named_and_the_next_attempt_gets_more(cluster, grid, finished_once):
    grid.configure(CONFIG)
    # the first attempt's limit does not hold torch
    memory = "train:mem_mb=250 if attempt == 1 else 4000"
    gpu = ("train:gpu=0", "train:gres=gpu:1")  # as a site says that wants --gres
    run = "results/runs/quick/digits/resnet8/ce/seed1"
    target = f"{run}/train.json"
    assert grid.start(target, "--set-resources", memory, *gpu).wait(timeout=900) == 0, grid.log()
    first, second = cluster.jobs("rule_train")[-2:]
    assert (first["JobState"] in ("FAILED", "OUT_OF_MEMORY"), second["JobState"]) == (True, "COMPLETED")
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("250M", "4000M")
    assert second["TresPerNode"] == "gres:gpu:1"
    # the message of the failure names SLURM's log of the job, and that names the reason
    assert f"SLURM-job '{first['JobId']}' failed" in grid.log()
    assert first["StdOut"] in grid.log()
    assert "exceeded memory limit" in Path(first["StdOut"]).read_text()
    assert "Trying to restart job" in grid.log()
    model = f"{run}/model.safetensors"
    assert (grid.root / model).read_bytes() == (finished_once.root / model).read_bytes()
