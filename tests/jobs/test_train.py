"""Stage train with real processes: killed anywhere, it ends with the same bytes; no half files."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from tests.jobs.small import HOME, command, key, small_study, train_arguments, trained

from calgrid.errors import StateError
from calgrid.jobs import network
from calgrid.plan.plan import Plan
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study

LS = key("fedlas_ls")
SAME = ("model.safetensors", "history.parquet", "samples.parquet")


@pytest.fixture(scope="module")
def undisturbed(plan, data, tmp_path_factory):
    return trained(plan, data, tmp_path_factory.mktemp("undisturbed"), LS).parent


def assert_same_bytes(left, right):
    for name in SAME:
        assert (left / name).read_bytes() == (right / name).read_bytes(), name


def resume_states(out):
    return list(out.parent.glob(f"{out.name}.partial/resume.pt"))


def wait_for(condition, process, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.005)


def test_files_of_a_run(undisturbed, plan):
    record = json.loads((undisturbed / "train.json").read_text())
    assert record["fingerprint"] == plan.train(LS).fingerprint
    assert record["epochs"] == 3
    assert record["last_batch"] == 20
    assert record["environment"]["device"] == "cpu"
    assert record["environment"]["deterministic"] is True
    assert record["precision"] == "fp32"
    states, description = load_checkpoint(undisturbed / "model.safetensors", record["fingerprint"])
    assert {"best.model", "last.model", "last.loss"} <= set(states)
    assert description["spec"]["key"]["method"] == "fedlas_ls"
    history = read_frame(undisturbed / "history.parquet")
    assert history["epoch"].tolist() == [0, 1, 2]
    assert {"positive_share", "mean_smoothing", "val_nll", "train_loss"} <= set(history.columns)
    assert not any(path.name.endswith((".tmp", ".pt")) for path in undisturbed.rglob("*"))


@pytest.mark.slow
def test_killed_and_stopped_by_signals_it_ends_with_the_same_bytes(
    plan, data, tmp_path, undisturbed
):
    """A signal of a scheduler saves the state and exits with 75; SIGKILL leaves that of a step."""
    out = tmp_path / "train"
    arguments = train_arguments(plan, data, out, "fedlas_ls", resume_every=0)
    for number in (signal.SIGKILL, signal.SIGUSR1):
        before = {state.stat().st_mtime_ns for state in resume_states(out)}
        process, times = command(*arguments), set()

        def written_twice(before=before, times=times):
            times |= {state.stat().st_mtime_ns for state in resume_states(out)} - before
            return len(times) > 1

        wait_for(written_twice, process)
        process.send_signal(number)
        _, messages = process.communicate(timeout=300)
        assert not (out / "model.safetensors").exists()
        assert resume_states(out)
        if number == signal.SIGKILL:
            assert process.returncode == -signal.SIGKILL
        else:
            assert process.returncode == 75
            assert f"Stopped by {number.name}" in messages
            assert "Traceback" not in messages
    last = command(*arguments)
    _, messages = last.communicate(timeout=300)
    assert last.returncode == 0, messages
    assert json.loads((out / "train.json").read_text())["interruptions"] == 2
    assert_same_bytes(out, undisturbed)
    assert not resume_states(out)


def test_second_stage_starts_from_the_tested_checkpoint_of_its_first(plan, data, run, tmp_path):
    checkpoint = run / "train/model.safetensors"
    first, _ = load_checkpoint(checkpoint)
    second, _ = load_checkpoint(
        trained(plan, data, tmp_path / "tst", key("tst"), first_stage=checkpoint)
    )
    body = {
        name: value for name, value in first["best.model"].items() if not name.startswith("head.")
    }
    assert all(second["last.model"][f"body.{name}"].equal(value) for name, value in body.items())
    assert len(read_frame(tmp_path / "tst/train/history.parquet")) == 2


def test_first_stage_of_another_fingerprint_is_refused(plan, data, tmp_path, undisturbed):
    with pytest.raises(StateError, match="another configuration or code version"):
        trained(
            plan, data, tmp_path / "tst", key("tst"), first_stage=undisturbed / "model.safetensors"
        )
    assert not (tmp_path / "tst").exists()


def test_a_search_stores_its_choice_as_every_checkpoint_and_no_predecessor(data, tmp_path):
    config = small_study(methods={"searched": {"base": "pcs", "combinations": 4}})
    config["grids"][0]["methods"] = ["searched"]
    model = trained(Plan(Study(config, HOME)), data, tmp_path, key("searched"))
    names = {path.name for path in model.parent.iterdir()}
    assert names == {"model.safetensors", "history.parquet", "train.json"}
    tuned = read_frame(model.with_name("history.parquet"))["val_nll"][3:]
    assert len(tuned) == 4
    assert tuned.idxmin() < 6  # so the choice is not the network at the end
    states, _ = load_checkpoint(model)
    assert states["best.model"].keys() == states["last.model"].keys()
    assert all(states["best.model"][name].equal(x) for name, x in states["last.model"].items())


def test_images_that_do_not_fit_are_streamed_to_the_same_bytes(
    plan, data, tmp_path, undisturbed, monkeypatch
):
    monkeypatch.setattr(network, "HELD_SHARE", 0)
    out = trained(plan, data, tmp_path, LS).parent
    assert_same_bytes(out, undisturbed)
    found = [json.loads((each / "train.json").read_text())["images"] for each in (undisturbed, out)]
    assert found == ["resident", "streamed"]


@pytest.mark.slow
@pytest.mark.parametrize("limit", [8, 200])
def test_on_a_full_disk_the_run_stops_and_goes_on_when_there_is_space(
    limit, plan, data, tmp_path, undisturbed
):
    """No file may grow beyond the limit (in kB): 8 stops the resume state, 200 the checkpoint."""
    out = tmp_path / "train"
    options = {} if limit == 200 else {"resume_every": 0}
    arguments = [str(part) for part in train_arguments(plan, data, out, "fedlas_ls", **options)]
    shell = [
        "bash",
        "-c",
        f'ulimit -f {limit}; exec "$@"',
        "bash",
        sys.executable,
        "-m",
        "calgrid",
        *arguments,
    ]
    done = subprocess.run(
        shell,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "CALGRID_DEVICE": "cpu"},
    )
    assert done.returncode == 2, done.stderr
    assert "The disk is full while writing" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (out / "model.safetensors").exists()
    assert not list(out.rglob("*.tmp"))
    trained(plan, data, tmp_path, LS)
    assert_same_bytes(out, undisturbed)


def test_a_gpu_that_is_not_there_is_an_error_before_training(plan, data, tmp_path):
    out = tmp_path / "train"
    process = command(
        *train_arguments(plan, data, out), "--device", "cuda", CUDA_VISIBLE_DEVICES=""
    )
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 2
    assert "torch finds no GPU here; use device: cpu or auto" in messages
    assert not out.exists()
