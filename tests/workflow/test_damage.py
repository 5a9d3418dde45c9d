"""Kills, missing and damaged files: one plain call makes a study whole again, to the same bytes."""

import json
import os
import re
import signal
import subprocess
import time

import numpy as np
import pytest
from tests.workflow.dag import AGGREGATION, CONFIG, METHODS, METRICS, RUN, branch, changed, jobs

pytestmark = pytest.mark.workflow
PARTS = "results/tiny/parts/quick/digits/resnet8"
#: files that say when and where something ran
TELLING = r"/(logs|benchmarks|\.calgrid)/|\.json$|report\.html$|/(costs|training_time|overview)\.|/pareto_"


def contents(repository):
    """Bytes of all results but those that hold times."""
    files = (path for path in (repository.root / "results").rglob("*") if path.is_file())
    names = {str(path.relative_to(repository.root)): path for path in files}
    return {
        name: path.read_bytes()
        for name, path in names.items()
        if not re.search(TELLING, f"/{name}")
    }


def flip_a_bit(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    with path.open("r+b") as file:  # in place: in a second link too
        file.write(content)


def every_link(repository, root, name):
    """A file of a stage, and what is kept of it below ``.calgrid``: in this copy these are two
    files.
    """
    folder = repository.root / root
    return [folder / name, *folder.glob(f".calgrid/*/*/{name}")]


def test_one_call_makes_whole_what_is_truncated_changed_or_missing(twin):
    before = contents(twin)
    (truncated, *copies) = every_link(twin, f"{RUN}/ce/seed1", "model.safetensors")
    for path in (truncated, *copies):
        os.truncate(path, 1000)
    for path in every_link(twin, f"{RUN}/mbls/seed1", "logits/last/test.parquet"):
        flip_a_bit(path)
    for path in every_link(twin, f"{PARTS}/tst+mbls/seed1", "metrics.parquet"):
        path.unlink()
    flip_a_bit(twin.root / "results/data/digits/train_images.npy")
    flip_a_bit(twin.root / "results/tiny/summary.parquet")
    next((twin.root / "results/tiny/tables").glob("*.csv")).unlink()
    damaged = contents(twin)
    planned = twin.plan()
    assert contents(twin) == damaged, "a dry run changed something"
    again = {
        "train ce/seed1",
        "predict mbls/seed1",
        "calibrate tst+mbls/seed1",
        "prepare_data digits",
    }
    behind = {*branch("ce", stages=("predict", "calibrate")), "calibrate mbls/seed1"}
    assert planned == again | behind | AGGREGATION - {"manifest"}
    assert "Report: results/tiny/report.html" in twin.run().stderr
    assert contents(twin) == before
    assert twin.plan() == set()


def test_what_was_deleted_alone_is_linked_again_and_no_job_runs(twin):
    run = twin.root / RUN / "tst+mbls/seed1"
    lost = [run / name for name in ("model.safetensors", "train.json", "logits/last/val.parquet")]
    lost += [
        twin.root / "results/data/photos/manifest.json",
        twin.root / PARTS / "ce/seed1/calibrate.json",
    ]
    before = [path.read_bytes() for path in lost]
    for path in lost:
        path.unlink()
    assert twin.plan() == set()
    assert [path.read_bytes() for path in lost] == before


def test_a_study_that_grew_is_not_called_damaged(twin):
    twin.configure(changed(methods=[*METHODS, "ls"], shifts=["ood/photos", "digits_c"]))
    result = twin.snakemake("--configfile", "tiny.yaml", "-n", "--cores", "2")
    output = result.stdout + result.stderr
    scored = branch(*METHODS, stages=("predict", "calibrate"))
    assert jobs(output) == {"prepare_data digits_c"} | scored | branch("ls") | AGGREGATION
    assert "Damaged" not in output
    assert f"such as those of new shifts, are computed again: {RUN}/ce/seed1/predict.json" in output


def test_models_that_may_be_deleted_are_not_trained_again(twin):
    models = list(twin.root.glob(f"{RUN}/*/seed1/model.safetensors"))
    for path in models:
        path.unlink()
    config = twin.configure({**CONFIG, "keep_models": False}, "lean.yaml")
    assert twin.plan(config.name) == set()
    assert not list((twin.root / "results").rglob("model.safetensors")), "the disk is not free"
    for path in every_link(twin, f"{RUN}/ce/seed1", "logits/last/val.parquet"):
        path.unlink()
    assert {"train ce/seed1", "predict ce/seed1"} <= twin.plan(config.name)


def test_the_advice_of_a_job_that_finds_damage_works_and_nothing_else_is_lost(twin):
    """A disk goes bad: no time of the file tells, so that planning trusts what it has seen before."""
    before = contents(twin)
    assert twin.plan() == set()
    record = twin.root / RUN / "ce/seed1/.calgrid/predict.seen"
    for path in every_link(twin, f"{RUN}/ce/seed1", "logits/last/test.parquet"):
        flip_a_bit(path)
        if path.parent.parent.parent.name == "seed1":
            seen = json.loads(record.read_text())
            record.write_text(
                json.dumps({**seen, "logits/last/test.parquet": path.stat().st_ctime_ns})
            )
    result = twin.snakemake(
        "--configfile",
        "tiny.yaml",
        "--cores",
        "1",
        "--forcerun",
        f"{PARTS}/ce/seed1/metrics.parquet",
    )
    assert result.returncode != 0
    said = f"The logits file {RUN}/ce/seed1/logits/last/test.parquet is damaged"
    assert said in result.stdout + result.stderr
    assert "run again to recompute it" in result.stdout + result.stderr
    assert set(before) - set(contents(twin)) <= {f"{PARTS}/ce/seed1/metrics.parquet"}, "its own"
    twin.run()
    assert contents(twin) == before


def test_a_forced_training_that_is_killed_takes_nothing_away(twin):
    before = contents(twin)
    process = twin.start("tiny.yaml", "all", "--forcerun", f"{RUN}/tst+mbls/seed1/train.json")
    lock = twin.root / RUN / "tst+mbls/seed1/.calgrid/train.lock"
    while not lock.exists() and process.poll() is None:
        time.sleep(0.02)
    os.kill(json.loads(lock.read_text())["pid"], signal.SIGKILL)
    assert process.wait(300) != 0
    assert contents(twin) == before
    assert twin.plan() == set()


def test_a_killed_grid_ends_with_the_same_bytes(fresh, finished):
    fresh.configure(CONFIG)
    process = fresh.start("tiny.yaml", METRICS)
    deadline = time.monotonic() + 300
    while not list(fresh.root.glob(f"{RUN}/*/seed1/.calgrid/train.lock")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)  # controller and jobs at once, as a node that goes down
    process.wait()
    fresh.run("tiny.yaml", METRICS, "--nolock", "--rerun-incomplete")
    assert fresh.plan("tiny.yaml", METRICS) == set()
    logs = [path.read_text() for path in fresh.root.glob("results/logs/train/**/*.log")]
    assert max(log.count("=== calgrid train, ") for log in logs) == 2, (
        "the killed attempt's log is kept"
    )
    whole = contents(finished)
    made = contents(fresh)
    assert {f"{RUN}/ce/seed1/model.safetensors", METRICS} <= set(made)
    assert made == {path: whole[path] for path in made}


def test_a_read_only_data_root_is_enough(finished, tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("mounting a read-only disk needs root")
    try:
        rng = np.random.default_rng(0)
        for name in ("val", "test"):
            np.savez(
                folder / f"{name}.npz",
                logits=rng.normal(size=(200, 3)),
                label=rng.integers(0, 3, 200),
            )
        subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        files = {
            "val": "val.npz",
            "test": "test.npz",
            "kind": "logits",
            "calibrators": ["none", "ts"],
        }
        finished.configure(
            {"study": "readonly", "data_root": str(folder), "external": {"mine": files}},
            "readonly.yaml",
        )
        finished.run("readonly.yaml", "results/readonly/metrics.parquet")
        assert sorted(path.name for path in folder.iterdir()) == ["test.npz", "val.npz"]
    finally:
        subprocess.run(["umount", folder], check=True)
