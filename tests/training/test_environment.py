"""What a process is allowed to compute with, and what it writes down about it."""

import os
import time

import pytest
import torch

from calgrid.errors import ConfigError
from calgrid.training import environment

CPU, CUDA = torch.device("cpu"), torch.device("cuda")


@pytest.fixture
def flags(monkeypatch):
    """Return what is set; all of it is undone after the test."""
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", "")
    places = {
        "benchmark": (torch.backends.cudnn, "benchmark"),
        "cudnn": (torch.backends.cudnn, "deterministic"),
        "tf32": (torch.backends.cuda.matmul, "allow_tf32"),
        "tf32_convolutions": (torch.backends.cudnn, "allow_tf32"),
    }
    before = {place: getattr(*place) for place in places.values()}

    def flags():
        return {
            "workspace": os.environ["CUBLAS_WORKSPACE_CONFIG"],
            "kernels": torch.are_deterministic_algorithms_enabled(),
            **{name: getattr(*place) for name, place in places.items()},
        }

    yield flags
    for place, value in before.items():
        setattr(*place, value)


def test_a_gpu_is_fast_by_default_and_repeats_its_numbers_on_request(flags):
    environment.prepare(CUDA, 1)
    fast = {"workspace": "", "kernels": False, "cudnn": False, "benchmark": True}
    assert flags() == {**fast, "tf32": True, "tf32_convolutions": True}
    assert environment.describe(CPU)["deterministic"] is False
    environment.prepare(CUDA, 1, deterministic=True)
    same = {"workspace": ":4096:8", "kernels": True, "cudnn": True, "benchmark": False}
    assert flags() == {**same, "tf32": False, "tf32_convolutions": False}
    assert environment.describe(CPU)["deterministic"] is True


def test_the_cpu_always_repeats_its_numbers(flags):
    torch.set_deterministic_debug_mode("default")
    before = flags()
    environment.prepare(CPU, 1)
    assert flags() == {**before, "kernels": True}


def test_an_operation_without_a_deterministic_kernel_is_named(flags, refuses):
    environment.prepare(CPU, 1)
    with (
        refuses(ConfigError, "train ce: the operation put_ has no deterministic kernel"),
        environment.explained("train ce"),
    ):
        torch.zeros(3).put_(torch.tensor([0]), torch.ones(1))
    with pytest.raises(RuntimeError, match="out of memory"), environment.explained("train ce"):
        raise RuntimeError("out of memory")


@pytest.fixture
def pretend(monkeypatch):
    """Pretend that torch finds a GPU of this compute capability, or none."""

    def pretend(capability, architectures=()):
        answers = {
            "is_available": capability is not None,
            "get_device_capability": capability,
            "get_arch_list": list(architectures),
            "get_device_name": "Tesla",
        }
        for name, answer in answers.items():
            monkeypatch.setattr(torch.cuda, name, lambda answer=answer: answer)

    return pretend


@pytest.mark.parametrize(
    ("capability", "architectures"),
    [
        ((7, 5), ["sm_75", "sm_120"]),
        ((8, 9), ["sm_75", "sm_86"]),
        ((12, 1), ["sm_90a", "compute_100"]),
        ((9, 4), ["gfx942"]),
        ((9, 0), []),
    ],
)
def test_a_gpu_for_which_torch_was_built_is_used(capability, architectures, pretend):
    pretend(capability, architectures)
    assert environment.choose_device("auto") == environment.choose_device("cuda") == CUDA
    assert environment.choose_device("cpu") == CPU


@pytest.mark.parametrize(
    ("capability", "architectures"), [((7, 0), ["sm_75", "sm_80"]), ((8, 0), ["sm_75", "sm_86"])]
)
def test_a_gpu_that_torch_was_not_built_for_is_refused(capability, architectures, pretend, refuses):
    pretend(capability, architectures)
    for name in ("auto", "cuda"):
        with refuses(ConfigError, "was not built for the GPU here, Tesla of", "use device: cpu"):
            environment.choose_device(name)


def test_an_unusable_gpu_is_said_unless_it_is_hidden(pretend, monkeypatch, tmp_path, capsys):
    pretend(None)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(environment, "NVIDIA_DEVICE", tmp_path)
    assert environment.choose_device("auto") == CPU
    assert "cannot use: computing on the CPU" in capsys.readouterr().err
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # hidden on purpose
    assert environment.choose_device("auto") == CPU
    monkeypatch.setattr(environment, "NVIDIA_DEVICE", tmp_path / "none")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert environment.choose_device("auto") == CPU
    assert capsys.readouterr().err == ""


def test_the_driver_is_read_from_what_both_kernel_modules_say():
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 UTC 2023\nGCC"
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build"
    assert environment.driver_version(closed) == "535.104.05"
    assert environment.driver_version(opened) == "580.65.06"
    assert environment.driver_version("") == ""


@pytest.mark.parametrize(
    ("abilities", "native"),
    [({}, False), ({"amx_tile": True}, True), ({"avx512_bf16": True}, True)],
)
def test_processors_that_compute_bf16(abilities, native, monkeypatch):
    monkeypatch.setattr(
        torch.cpu, "_is_amx_tile_supported", lambda: abilities.get("amx_tile", False)
    )
    monkeypatch.setattr(
        torch.cpu, "_is_avx512_bf16_supported", lambda: abilities.get("avx512_bf16", False)
    )
    assert environment.computes_bf16(CPU) is native


def test_free_memory_is_what_the_machine_and_the_job_leave(tmp_path):
    """A job of SLURM within a step, with limits in both versions of control groups."""
    own, group = tmp_path / "cgroup", tmp_path / "fs" / "job" / "step"
    group.mkdir(parents=True)
    for folder, limit, used in ((group, "max", "10"), (group.parent, "5000", "1000")):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
    own.write_text("0::/job/step\n")
    assert list(environment.control_group_free_bytes(tmp_path / "fs", own)) == [4000]
    first = tmp_path / "fs" / "memory" / "job"
    first.mkdir(parents=True)
    (first / "memory.limit_in_bytes").write_text("700\n")
    (first / "memory.usage_in_bytes").write_text("900\n")
    own.write_text("3:cpu:/job\n4:memory:/job\n")
    assert list(environment.control_group_free_bytes(tmp_path / "fs", own)) == [0]
    assert 0 <= environment.free_bytes(torch.device("cpu")) < 2**50


def test_a_waiting_process_costs_a_processor_nothing_and_a_gpu_its_time():
    clocks = [environment.clock(device) for device in (CPU, CUDA)]
    begins = [clock() for clock in clocks]
    time.sleep(0.1)
    on_cpu, on_gpu = (clock() - begin for clock, begin in zip(clocks, begins, strict=True))
    assert on_cpu < 0.05
    assert on_gpu >= 0.1
