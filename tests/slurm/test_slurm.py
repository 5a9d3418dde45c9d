"""Real jobs of SLURM: one grid through everything that clusters do, to the bytes of a local run.

One file, so that one process starts one cluster.
"""

import contextlib
import json
import os
import re
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.slurm.cluster import wait_for
from tests.workflow.dag import METRICS, RUN, Repository, changed

from calgrid.storage.locks import _process_start

pytestmark = [pytest.mark.slurm, pytest.mark.timeout(1800)]
METHODS = ("ce", "mbls")
#: what a site and a study may say: a first attempt whose limit does not hold torch, and --gres in
#: place of --gpus
SITE = (
    "--set-resources",
    "train:mem_mb=250 if attempt == 1 and wildcards.method == 'mbls' else 4000",
    "predict:gpu=0",
    "predict:gres=gpu:1",
)
#: tables, figures and report are processes of a second that differ in nothing from aggregate
SCORES = ("--until", "aggregate")
#: a resume state ten times a second
OFTEN = {"CALGRID_RESUME_SECONDS": "0.1"}
#: the device is left open, so that jobs ask for a GPU
STUDY = {**changed(methods=list(METHODS), shifts=[]), "device": "auto"}
#: enough to be interrupted twice
STUDY["protocols"]["quick"]["epochs"] = 40


class Run:
    """One run of a grid and the SLURM job that trains it."""

    def __init__(self, grid, cluster, method):
        self.grid, self.cluster, self.method = grid, cluster, method
        self.folder = grid.root / RUN / method / "seed1"
        self.comment = f"rule_train_wildcards_quick_digits_resnet8_{method}_1"

    def begun(self):
        """The running job, once it has written a resume state."""
        wait_for(lambda: self.cluster.jobs(self.comment), f"a job of {self.method}")
        begin = time.time()

        def saved():
            job = self.cluster.jobs(self.comment)[-1]
            if job["JobState"] == "PENDING" and job["Restarts"] != "0":
                # else it is put off for two minutes; refused if it has started meanwhile
                self.cluster.try_command(
                    "scontrol", "update", f"JobId={job['JobId']}", "StartTime=now"
                )
            if job["JobState"] != "RUNNING":
                return None
            states = list(self.folder.glob("train-*.partial/resume.pt"))
            with contextlib.suppress(FileNotFoundError):  # it is replaced while we look
                return job if any(state.stat().st_mtime > begin for state in states) else None

        return wait_for(saved, f"a resume state of {self.method}")

    @contextlib.contextmanager
    def held(self):
        """The running job, once it has written a resume state; until we are done its process does
        not go on.
        """
        job, writer = self.begun(), self.writer()
        os.kill(writer, signal.SIGSTOP)
        try:
            yield job
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(writer, signal.SIGCONT)

    def writer(self):
        """Process that holds the run's lock."""
        (lock,) = self.folder.glob("train-*.lock")
        return json.loads(lock.read_text())["pid"]

    def requeued(self, job, writer):
        """Wait until SLURM has put the job back into its queue and its process has ended."""
        wait_for(
            lambda: self.cluster.job(job)["Restarts"] != "0", f"the requeueing of {self.method}"
        )
        self.ended(writer)

    def ended(self, writer):
        """Wait for the end of a process, which can outlive its job: the state that it then saves
        would pass for that of the next start.
        """
        wait_for(
            lambda: not _process_start(writer), f"the end of process {writer} of {self.method}"
        )

    def log(self):
        folder = self.grid.root / f"results/logs/train/quick/digits/resnet8/{self.method}"
        with contextlib.suppress(FileNotFoundError, StopIteration):
            # Snakemake deletes the log before each attempt
            return next(folder.glob("seed1-*.log")).read_text()
        return ""

    def record(self):
        (record,) = self.folder.glob("train-*/train.json")
        return json.loads(record.read_text())


def cancel(cluster, run):
    """``scancel``: the job fails, Snakemake tries again."""
    with run.held() as job:
        writer = run.writer()
        cluster.command("scancel", job["JobId"])
    wait_for(lambda: cluster.job(job)["JobState"] == "CANCELLED", "the cancelled job")
    run.ended(writer)


def warn(cluster, run):
    """What ``slurm_extra: --signal=USR1@30`` does before a time limit."""
    with run.held() as job:
        cluster.command("scancel", "--signal=USR1", job["JobId"])
    wait_for(lambda: cluster.job(job)["JobState"] == "FAILED", "the warned job")


def preempt(cluster, run):
    """A job of a partition of higher priority takes the node; SLURM requeues ours."""
    with run.held() as job:
        writer = run.writer()
        options = f"--parsable --partition=urgent --nodelist={job['NodeList']} --mem=10"
        cluster.command("sbatch", *options.split(), "--output=/dev/null", "--wrap", "true")
        wait_for(lambda: cluster.job(job)["JobState"] != "RUNNING", "the preempted job")
    run.requeued(job, writer)


def lose_node(cluster, run):
    """The node goes down and comes back; SLURM puts the job back into the queue."""
    with run.held() as job:
        writer, node = run.writer(), f"NodeName={job['NodeList']}"
        cluster.command("scontrol", "update", node, "State=DOWN", "Reason=test")
    run.requeued(job, writer)
    # a node that still ends the job refuses to start it again: SLURM then holds the job for good
    ending = ("pgrep", "--full", rf"slurmstepd: \[{job['JobId']}\.")
    wait_for(lambda: cluster.try_command(*ending).returncode == 1, f"the last steps of {node}")
    cluster.command("scontrol", "update", node, "State=RESUME")


def reach_time_limit(cluster, run):
    """The limit passes while the process is frozen, so that it cannot end before."""
    with run.held() as job:
        cluster.command("scontrol", "update", f"JobId={job['JobId']}", "EndTime=now+1")
        wait_for(lambda: cluster.job(job)["JobState"] == "TIMEOUT", "the time limit")


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    """The same grid on this machine without SLURM."""
    undisturbed = Repository(tmp_path_factory.mktemp("undisturbed"))
    undisturbed.configure(STUDY)
    undisturbed.run("tiny.yaml", *SCORES)
    return undisturbed


@pytest.fixture(scope="module")
def planned(new_grid):
    """The grid, and what a dry run says of it."""
    grid = new_grid()
    grid.configure(STUDY)
    shown = grid.snakemake("--profile", "slurm", *SITE, "--configfile", "tiny.yaml", "-n")
    assert shown.returncode == 0, shown.stdout + shown.stderr
    return grid, shown.stdout + shown.stderr


@pytest.fixture(scope="module")
def finished(cluster, planned):
    """The grid after all events."""
    grid, _ = planned
    try:
        go_through_all_events(cluster, grid)
    except AssertionError as error:
        error.add_note("\n".join([grid.log(), cluster.logs(), *map(str, cluster.jobs())]))
        raise
    return grid


def go_through_all_events(cluster, grid):
    ce, mbls = (Run(grid, cluster, method) for method in METHODS)
    first = grid.start(*SITE, *SCORES, "--retries", "2", **OFTEN)

    def disturb_mbls():
        preempt(cluster, mbls)
        reach_time_limit(cluster, mbls)
        mbls.begun()

    with ThreadPoolExecutor() as pool:
        disturbed = pool.submit(disturb_mbls)
        cancel(cluster, ce)
        lose_node(cluster, ce)
        warn(cluster, ce)
        # the controller dies while jobs of its own run; a second one is called at once
        with ce.held() as orphan:  # as slow as it takes for the second one's job to meet it
            disturbed.result()
            first.kill()
            first.wait()
            wait_for(lambda: list(mbls.folder.glob("train-*/train.json")), "the end of mbls")
            second = grid.start(*SITE, *SCORES, **OFTEN)
            refusal = f"is being written by process {ce.writer()}"
            wait_for(lambda: refusal in ce.log(), "the second writer that waits for the first")
            assert f"SLURM job {orphan['JobId']}" in ce.log()
            assert cluster.job(orphan)["JobState"] == "RUNNING"
    assert second.wait(timeout=900) == 0
    assert ce.record()["environment"]["slurm_job"] == orphan["JobId"], (
        "trained once, by the job that was left alone"
    )
    assert refusal in ce.log(), "what the second job said is kept beside what the first one said"


def completed(cluster, rule):
    """Jobs of a rule that ended well."""
    return [job for job in cluster.jobs(f"rule_{rule}") if job["JobState"] == "COMPLETED"]


def test_results_are_byte_for_byte_those_of_a_local_run(finished, reference):
    runs = reference.root / RUN
    files = [*runs.rglob("*-*/model.safetensors"), *runs.rglob("*-*/**/*.parquet")]
    assert {path.relative_to(runs).parts[0] for path in files} == set(METHODS)
    for path in (*files, reference.root / METRICS):
        assert (finished.root / path.relative_to(reference.root)).read_bytes() == path.read_bytes()
    assert finished.plan("tiny.yaml", "--profile", "slurm", *SCORES) == set()


def test_interrupted_trainings_go_on_and_each_start_is_in_the_log(finished, cluster):
    # a requeued job may be interrupted a second time by the end of its first start
    for run in (Run(finished, cluster, method) for method in METHODS):
        assert run.record()["interruptions"] >= 2, "started anew"
    ce = Run(finished, cluster, "ce")
    started = re.findall(r"^=== calgrid train, .*, SLURM job (\d+)$", ce.log(), re.MULTILINE)
    assert set(started) == {job["JobId"] for job in cluster.jobs(ce.comment)}


def test_jobs_that_use_a_network_ask_for_a_gpu_and_no_others(finished, cluster):
    gpu = "gres:gpu:1"
    asked = {"train": {"TresPerJob": gpu}, "predict": {"TresPerNode": gpu}}
    for rule in (*asked, "calibrate", "aggregate"):
        jobs = completed(cluster, rule)
        assert jobs
        for job in jobs:
            found = {name: job[name] for name in ("TresPerJob", "TresPerNode") if name in job}
            assert found == asked.get(rule, {}), rule


@pytest.mark.parametrize("rule", ["train", "calibrate", "aggregate"])
def test_a_dry_run_shows_what_is_submitted(rule, planned, finished, cluster):
    shown = re.findall(
        rf"^rule {rule}:.*?^ +resources: (.*?)$", planned[1], re.MULTILINE | re.DOTALL
    )
    jobs = completed(cluster, rule)
    asked = {
        (int(job["MinMemoryNode"][:-1]), job["TimeLimit"], "TresPerJob" in job) for job in jobs
    }
    told = set()
    for text in shown:
        numbers = dict(re.findall(r"(\w+)=(\d+)", text))
        hours, minutes = divmod(int(numbers["runtime"]), 60)
        limit = f"{hours:02d}:{minutes:02d}:00"
        told.add((int(numbers["mem_mb"]), limit, numbers.get("gpu") == "1"))
    assert told - {(250, *rest) for _, *rest in told} == asked


def test_too_little_memory_is_named_and_the_next_attempt_gets_more(finished, cluster):
    first, *later = cluster.jobs(Run(finished, cluster, "mbls").comment)
    assert first["JobState"] in ("FAILED", "OUT_OF_MEMORY")
    assert [job["JobState"] for job in later] == ["TIMEOUT", "COMPLETED"]
    assert [job["MinMemoryNode"] for job in (first, *later)] == ["250M", "4000M", "4000M"]
    told = finished.log().partition(f"SLURM-job '{first['JobId']}' failed")[2]
    told, _, _ = told.partition("Trying to restart job")
    assert "The reason: out of memory: raise mem_mb of the rule" in told


def test_a_cluster_without_accounting_is_found_out_by_each_call_and_squeue_asked(finished):
    said = "has no accounting (Slurm accounting storage is disabled): the states of jobs are "
    assert finished.log().count(f"{said}read from squeue") == len(finished.controllers)
