"""The machine a run is on: device, threads, precision, and what must be written down about them."""

import contextlib
import os
import platform
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from calgrid.errors import ConfigError
from calgrid.storage import provenance

#: files with the limit and the use of a control group, in its second version and in its first
CGROUP_FILES = {"": ("memory.max", "memory.current"), "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes")}


def choose_device(wanted: str) -> torch.device:
    """Device for ``cpu``, ``cuda`` or ``auto``; ``cuda`` without a GPU raises ConfigError."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: 'cuda' was asked for but torch finds no GPU here; use device: cpu or auto.")
    return torch.device(wanted)


def prepare(device: torch.device, threads: int, deterministic: bool = False) -> None:
    """Set the threads of this process and which kernels it may use; to be called before anything is put on the device.

    On the CPU kernels are always reproducible. On a GPU they are with ``deterministic``, at the price of speed; an
    operation that has no such kernel then fails. Without it the GPU tries which convolution is fastest, uses TF32, and
    adds up in an order that is left to chance: numbers differ a little from one run to the next.
    """
    torch.set_num_threads(threads)
    if device.type == "cuda":
        if deterministic:
            # read when cuBLAS starts: its products are reproducible with a workspace of fixed size only
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
    # what use_deterministic_algorithms does, without its import of the compiler, which takes a second
    torch.set_deterministic_debug_mode("error" if deterministic or device.type == "cpu" else "default")


@contextlib.contextmanager
def explained(title: str) -> Iterator[None]:
    """Turn PyTorch's error for an operation that has no deterministic kernel into a ConfigError in one sentence."""
    try:
        yield
    except RuntimeError as error:
        operation, found, _ = str(error).partition(" does not have a deterministic implementation")
        if not found:
            raise
        raise ConfigError(
            f"{title}: the operation {operation.split()[-1]} has no deterministic kernel; use another backbone or, on "
            "a GPU, deterministic: false in the protocol."
        ) from None


def computes_bf16(device: torch.device) -> bool:
    """Does the device multiply bfloat16 natively? Autocast elsewhere is slower than float32.

    Processors do with AMX (Intel since Sapphire Rapids) or AVX512_BF16 (also AMD since Zen 4).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported())


def free_bytes(device: torch.device) -> int:
    """Bytes of memory that this process may still take: of the GPU, or of the machine and the job's share of it."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    found = re.search(r"MemAvailable:\s*(\d+) kB", _text(Path("/proc/meminfo")))
    machine = 1024 * int(found[1]) if found else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *_left_to_groups()])


def _left_to_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> Iterator[int]:
    """What the limits of the control groups of this process leave, those of a cluster's job for one."""
    for line in _text(own).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers in CGROUP_FILES:
            place = root / controllers / path.lstrip("/")
            for folder in (place, *place.parents):
                limit, used = (_text(folder / name).strip() for name in CGROUP_FILES[controllers])
                if limit.isdigit() and used.isdigit():
                    yield max(int(limit) - int(used), 0)


def _text(path: Path) -> str:
    """Content of a file of the kernel; empty where there is none."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def peak_memory_mb(device: torch.device) -> float:
    """Largest memory in MB: of the GPU's allocator, or resident memory of this process on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return provenance.peak_memory_mb()


def describe(device: torch.device) -> dict[str, str | int]:
    """Where a stage ran, with versions, device, driver, threads and whether its numbers repeat, for its record."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        **provenance.describe("numpy"),
        "torch": torch.__version__,
        "device": device.type,
        "device_name": gpu or platform.machine(),
        "cuda": (torch.version.cuda or "") if gpu else "",
        "driver": _driver() if gpu else "",
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def run_record(spec: Mapping[str, Any], seconds: float, device: torch.device) -> dict[str, Any]:
    """Return what every stage that used a network records: configuration, environment, time, memory."""
    return {
        "spec": dict(spec),
        "fingerprint": spec["fingerprint"],
        "environment": describe(device),
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(device),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _driver() -> str:
    """Version of the NVIDIA kernel driver; empty where the system does not tell."""
    found = re.search(r"Kernel Module\D*(\d+(?:\.\d+)+)", _text(Path("/proc/driver/nvidia/version")))
    return found[1] if found else ""
