"""Trainings in two processes on the CPU, started as jobs are: the result of one process, stopped
and continued like it; refusals before they start.
"""

import os
import signal
import time
from pathlib import Path

import pandas as pd
import pytest
import torch
from tests.conftest import is_one_sentence
from tests.jobs.small import HOME, command, small_study, train, write_plan

from calgrid.cli import main
from calgrid.components import plugins
from calgrid.errors import ConfigError
from calgrid.jobs import distributed
from calgrid.plan.plan import Plan
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.records import RunKey
from calgrid.storage.tables import read_frame
from calgrid.study.study import Study

MODULE = "calgrid.jobs.distributed"
#: largest difference of weights, statistics of losses and means of the history after three epochs,
#: as a share of the largest number of its tensor; at most 1.3e-5 was measured
TOLERANCE = 1e-4
SAME = ("model.safetensors", "history.parquet", "samples.parquet")


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """A plugin with a network without batch normalisation."""
    folder = tmp_path_factory.mktemp("plugin") / "mine"
    assert main(["new", "backbone", "my_backbone", "--into", str(folder)]) == 0
    yield folder
    plugins.use(())
    plugins.forget()


@pytest.fixture(scope="module")
def planned(own):
    """A function that plans a run by its method, its processes and its backbone."""

    def plan(method, processes, backbone="my_backbone"):
        config = small_study(plugins=[str(own)])
        config["protocols"]["quick"] |= {"gpus": processes, "checkpoints": ["last", "ema", "swa"]}
        grid = {"methods": [method], "backbones": [backbone], "calibrators": ["none"], "shifts": []}
        config["grids"][0].update(grid)
        made = Plan(Study(config, HOME))
        return made.train(RunKey("quick", "digits", backbone, method, 1)).spec

    return plan


@pytest.fixture(scope="module")
def start(own, data):
    """A function that starts the job of a specification in a folder."""

    def begin(spec, out, *options):
        path = out.with_name(f"{out.name}-plan.json")
        write_plan(path, {str(out): spec}, MODULE, [data / "digits/manifest.json"])
        arguments = ["job", "train", "--plan", path, "--out", out]
        return command(*arguments, *options, CALGRID_PLUGINS=str(own))

    return begin


def finished(process):
    _, messages = process.communicate(timeout=600)
    assert process.returncode == 0, messages
    return messages


def assert_close(left, right):
    weights, others = (load_checkpoint(each / "model.safetensors")[0] for each in (left, right))
    assert weights.keys() == others.keys()
    for group, tensors in weights.items():
        for name, tensor in tensors.items():
            mine, other = tensor.float(), others[group][name].float()
            scale = mine.abs().max() if mine.numel() else 0
            assert torch.allclose(mine, other, rtol=0, atol=TOLERANCE * scale), name
    histories = (read_frame(each / "history.parquet") for each in (left, right))
    pd.testing.assert_frame_equal(*histories, rtol=TOLERANCE, atol=TOLERANCE)


def assert_same_bytes(left, right):
    for name in SAME:
        assert (left / name).read_bytes() == (right / name).read_bytes(), name


@pytest.fixture(scope="module")
def undisturbed(planned, start, tmp_path_factory):
    out = tmp_path_factory.mktemp("undisturbed") / "two"
    messages = finished(start(planned("fedlas_ls", 2), out))
    assert messages.count("=== calgrid train, attempt 1") == 1
    assert messages.count("epoch 3/3") == 1
    return out


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(undisturbed, planned, data, tmp_path):
    train(planned("fedlas_ls", 1), data / "digits", tmp_path / "one")
    assert_close(tmp_path / "one", undisturbed)


@pytest.mark.slow
# twice the images of the batch; pairs of images of different processes, and two forward passes
@pytest.mark.parametrize("method", ["regmixup", "rankmixup_mndcg"])
def test_methods_that_join_images_give_the_result_of_one_process(
    method, planned, start, data, tmp_path
):
    finished(start(planned(method, 2), tmp_path / "two"))
    train(planned(method, 1), data / "digits", tmp_path / "one")
    assert_close(tmp_path / "one", tmp_path / "two")


def stopped(start, spec, out, number, victim):
    """Start a training that is sent a signal after it has saved a resume state; return its
    messages.
    """
    state = out.with_name(f"{out.name}.partial") / "resume.pt"
    begin, end = time.time(), time.monotonic() + 300
    process = start(spec, out, "--resume-every", "0")
    while not state.exists() or state.stat().st_mtime < begin:
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
    os.kill(victim(process), number)
    _, messages = process.communicate(timeout=300)
    return process.returncode, messages.splitlines()


@pytest.mark.slow
def test_stopped_by_a_signal_and_with_a_process_killed_a_run_ends_with_the_same_bytes(
    planned, start, tmp_path, undisturbed
):
    def child(process):
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        return int(listed.split()[1])

    out, spec = tmp_path / "train", planned("fedlas_ls", 2)
    # torchrun itself does not pass on SIGUSR1: it becomes SIGTERM, which it does
    code, messages = stopped(start, spec, out, signal.SIGUSR1, lambda process: process.pid)
    assert code == 75
    said = "calgrid train: Stopped by SIGTERM: the state is saved; run again to continue."
    assert messages[1:] == [said]

    code, messages = stopped(start, spec, out, signal.SIGKILL, child)
    assert code == 2
    assert is_one_sentence(messages[-1].removeprefix("calgrid train: "))
    assert "Process 2 of 2 was killed by SIGKILL; run again" in messages[-1]
    finished(start(spec, out))
    assert_same_bytes(out, undisturbed)


def test_without_gpus_batch_normalisation_is_refused_before_the_processes_start(
    planned, start, tmp_path
):
    process = start(planned("ce", 2, "resnet8"), tmp_path / "train")
    _, messages = process.communicate(timeout=300)
    assert process.returncode == 2
    (message,) = messages.splitlines()[1:]
    assert is_one_sentence(message.removeprefix("calgrid train: "))
    assert "without GPUs PyTorch cannot share the batch normalisation of 'resnet8'" in message
    assert not list(tmp_path.glob("train*.partial"))


def test_more_gpus_than_the_machine_has_are_refused(planned, data, monkeypatch, refuses):
    monkeypatch.setattr(distributed.environment, "choose_device", torch.device)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with refuses(ConfigError, "'quick' trains on 4 GPUs and this machine has 2"):
        distributed.check(planned("ce", 4), data / "digits", "cuda")
    distributed.check(planned("ce", 2, "resnet8"), data / "digits", "cuda")
