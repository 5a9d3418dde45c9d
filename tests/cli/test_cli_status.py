"""``calgrid status`` reads records, locks and logs alone, wherever their jobs ran."""

import json
import os
import time
from pathlib import Path

import pytest
import yaml

from calgrid.cli.joblogs import COMPLETE, MARK
from calgrid.plan.plan import Plan
from calgrid.report.changes import BEFORE, TABLE
from calgrid.storage import locks
from calgrid.storage.records import HISTORY, MODEL, TRAIN, write_record
from calgrid.study.study import Study

LINE = "train digits/resnet8/ce/seed1: epoch 12/60, loss 0.31, val_accuracy 0.81, 1:40 left"
GRID = {"methods": ["ce", "ls", "mbls", "fl3", "brier"]}


@pytest.fixture
def place(tmp_path, monkeypatch, make_config):
    """Working directory with a configuration."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(make_config(GRID)))
    return tmp_path


@pytest.fixture
def jobs(succeeds):
    def found(*options):
        done = succeeds("status", "study.yaml", *options)
        return json.loads(done.out)["jobs"] if options else done.out

    return found


@pytest.fixture
def found(jobs):
    """Function that returns what is said of the training of each method."""

    def by_method():
        trained = (job for job in jobs("--json") if job["stage"] == "train")
        return {job["about"].split("/")[3]: job for job in trained}

    return by_method


@pytest.fixture
def trainings(home, make_config):
    """Training of each method: the folder of its result and its job."""
    plan = Plan(Study(make_config(GRID), home))
    jobs = [job for job in plan.jobs if job.kind == "train"]
    return {job.spec["key"]["method"]: job for job in jobs}


def log(job, *lines):
    path = Path(f"results/logs/train/{job.about}-{job.id}.log")
    path.parent.mkdir(parents=True)
    path.write_text("\n".join([f"{MARK}train, attempt 1, now", *lines, ""]))


def test_states_of_trainings(place, jobs, found, trainings):
    done = place / trainings["brier"].folder
    for name in (TRAIN, HISTORY, MODEL):
        write_record(done / name, {"fingerprint": trainings["brier"].fingerprint})
    older = Path(trainings["fl3"].folder).with_name("train-0123456789")
    write_record(place / older / "train.json", {"fingerprint": "of another configuration"})
    log(trainings["ce"], LINE)
    stopped = "calgrid train: Stopped by SIGINT: the state is saved; run again to continue."
    log(trainings["ls"], LINE, stopped)
    diverged = "train digits/resnet8/mbls/seed1 diverged in epoch 3: lower the rate."
    log(trainings["mbls"], f"calgrid train: {diverged}")
    with locks.OwnerLock(place / f"{trainings['ce'].folder}.lock", "run"):
        found, text = found(), jobs()
    states = {"ce": "running", "ls": "stopped", "mbls": "failed", "fl3": "waiting", "brier": "done"}
    assert {method: job["state"] for method, job in found.items()} == states
    running = found["ce"]
    assert (running["epoch"], running["epochs"], running["left"]) == (12, 60, "1:40")
    assert f"process {os.getpid()} on " in running["where"]
    assert found["mbls"]["reason"].endswith("diverged in epoch 3: lower the rate.")
    assert text.startswith("study 'small': 1 of 16 jobs done, without those of aggregate,")
    assert "ce/seed1: epoch 12/60, loss 0.31, val_accuracy 0.81, 1:40 left\n" in text
    assert found["mbls"]["log"] in text
    assert "waiting" in next(line for line in text.splitlines() if line.split()[0] == "predict")


def test_why_a_run_is_made_again(place, calgrid, trainings):
    job = trainings["ls"]
    older = json.loads(json.dumps(job.spec))
    older["loss"]["options"]["alpha"], older["data"] = 0.2, "other"
    inputs = {"code": {"calgrid.losses.gone": "0123"}}
    record = Path(job.folder).with_name("train-0123456789") / job.record
    write_record(place / record, {"spec": older, "inputs": inputs})
    write_record(place / trainings["ce"].result, {})
    done = calgrid("status", "study.yaml", "--why", "ls")
    training, prediction, _ = done.out.splitlines()
    assert training.startswith(f"{job.about}/train-{job.id}: differs from train-0123456789 in ")
    changes = ["its data set (see there)", "alpha 0.2 -> 0.05", "losses/ls.py is new"]
    assert all(change in training for change in [*changes, "losses/gone.py is not used any more"])
    assert prediction.endswith(": there is no older result")
    done = calgrid("status", "study.yaml", "--why", "ce")
    assert done.out.splitlines()[0].endswith(": is there")


def test_a_record_that_cannot_be_read_is_named(place, jobs, trainings):
    record = place / trainings["brier"].result
    record.parent.mkdir(parents=True)
    record.write_text("garbage")
    text = jobs()
    assert text.startswith("study 'small': 0 of 16 jobs done, without")
    assert "1 damaged" in text
    assert f"The train record {trainings['brier'].result} " in text


def test_what_was_removed_and_what_waits_in_the_queue_has_not_failed(
    place, found, trainings, monkeypatch
):
    (place / "squeue").write_text(
        f"#!/bin/sh\necho rule_train_wildcards_digits_ls_1_{trainings['ls'].id} '11 (Priority)'\n"
    )
    (place / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(place), prepend=os.pathsep)
    log(trainings["ce"], LINE, f"{COMPLETE}2026-01-01T00:00:00+00:00")
    log(trainings["ls"], "killed")
    slurm = place / ".snakemake/slurm_logs/rule_train/digits_mbls/93.log"
    slurm.parent.mkdir(parents=True)
    slurm.write_text("slurmstepd: error: *** JOB 93 ON n1 CANCELLED AT 2026-01-01T07:43:54 ***")
    log(trainings["mbls"], LINE)
    path = place / f"results/logs/train/{trainings['mbls'].about}-{trainings['mbls'].id}.log"
    path.write_text(f"{MARK}train, attempt 1, now, SLURM job 93\n{LINE}\n")
    found = found()
    states = [found[method]["state"] for method in ("ce", "ls", "mbls")]
    assert states == ["missing", "queued", "failed"]
    assert found["ce"]["reason"] == "complete on 2026-01-01T00:00:00+00:00, removed since"
    assert found["ls"]["where"] == "SLURM job 11 (Priority)"
    assert found["mbls"]["reason"] == "cancelled"


def test_an_owner_on_another_host_lives_as_long_as_its_heart_beats(place, found, trainings):
    lock = place / f"{trainings['ce'].folder}.lock"
    lock.parent.mkdir(parents=True)
    owner = {"host": "node7", "pid": 5, "slurm_job": "812", "since": "2026-01-01 00:00:00"}
    lock.write_text(json.dumps({**owner, "token": "t"}))
    log(trainings["ce"], LINE)
    training = found()["ce"]
    assert training["state"] == "running"
    assert training["where"] == "process 5 on node7, SLURM job 812 since 2026-01-01 00:00:00"
    before = time.time() - 2 * locks.STALE_SECONDS
    os.utime(lock, (before, before))
    training = found()["ce"]
    assert training["state"] == "failed"
    assert "killed, or ended without a message" in training["reason"]


def test_numbers_that_the_last_run_moved_are_said_the_largest_first(place, jobs):
    folder = place / "results" / yaml.safe_load((place / "study.yaml").read_text())["study"]
    assert "changed" not in jobs()
    head = "protocol,dataset,backbone,checkpoint,method,calibrator,nll_mean\n"
    for name, values in ((BEFORE, (0.3, 0.4, 0.5)), (TABLE, (0.3, 0.4123, 0.25))):
        rows = zip(("none", "ts", "iso"), values, strict=True)
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(head + "".join(f"p,d,b,last,ce,{c},{nll}\n" for c, nll in rows))
    assert jobs().splitlines()[-3:] == [
        f"changed in {TABLE} when it was last made:",
        "  NLL of ce with iso (p, d, b, last): 0.5000 -> 0.2500 (-0.25)",
        "  NLL of ce with ts (p, d, b, last): 0.4000 -> 0.4123 (+0.012)",
    ]
    (folder / BEFORE).write_text((folder / TABLE).read_text())
    assert jobs().splitlines()[-1] == "  nothing"
