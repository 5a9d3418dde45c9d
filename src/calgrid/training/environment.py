"""Environment of a run: device, threads, precision, and their record."""

import contextlib
import os
import platform
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch

from calgrid.errors import ConfigError
from calgrid.progress import log
from calgrid.storage import provenance
from calgrid.storage.records import Facts

#: device file of NVIDIA's driver
NVIDIA_DEVICE = Path("/dev/nvidiactl")

#: files with the limit and the use of a control group, in its second version and in its first
CGROUP_FILES = {
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}


def choose_device(name: str) -> torch.device:
    """Return the device for ``cpu``, ``cuda`` or ``auto``, which is a GPU if torch can use one.

    Raises
    ------
    ConfigError : ``cuda`` without a GPU, or a GPU for which this PyTorch was not built.
    """
    if name == "cpu":
        return torch.device("cpu")
    if torch.cuda.is_available():
        _check_built_for(torch.cuda.get_device_capability(), torch.cuda.get_arch_list())
        return torch.device("cuda")
    if name == "cuda":
        raise ConfigError(
            "device: 'cuda' is configured but torch finds no GPU here; use device: cpu or auto."
        )
    if NVIDIA_DEVICE.exists() and os.environ.get("CUDA_VISIBLE_DEVICES") != "":
        built = f"for CUDA {torch.version.cuda}" if torch.version.cuda else "without CUDA"
        log(
            f"Warning: this machine has an NVIDIA GPU that PyTorch {torch.__version__}, built "
            f"{built}, cannot use: computing on the CPU; install a newer driver or another "
            "PyTorch, or set device: cpu."
        )
    return torch.device("cpu")


def _check_built_for(capability: tuple[int, int], architectures: list[str]) -> None:
    """Raise ConfigError unless a GPU of this compute capability runs code for one of the
    architectures: ``sm_86`` for GPUs of its generation from 8.6 on, ``compute_86`` for all later
    ones. An empty list, or a list of AMD's, decides nothing.
    """
    major, minor = capability
    known = re.findall(r"(sm|compute)_(\d+)", " ".join(architectures))
    for kind, number in known:
        generation, least = divmod(int(number), 10)
        if (major, minor) >= (generation, least) and (kind == "compute" or major == generation):
            return
    if known:
        raise ConfigError(
            f"PyTorch {torch.__version__} was not built for the GPU here, "
            f"{torch.cuda.get_device_name()} of compute capability {major}.{minor}, but for "
            f"{', '.join(architectures)}; install one that was (see docs/installing.md), or use "
            "device: cpu."
        )


def prepare(device: torch.device, threads: int, deterministic: bool = False) -> None:
    """Set threads and kernels of this process; call it before tensors move to the device.

    On the CPU kernels are always deterministic. On a GPU they are with ``deterministic``, which is
    slower and fails for operations without a deterministic kernel. Without it the GPU benchmarks
    convolutions, uses TF32, and sums in random order: results differ slightly between runs.
    """
    torch.set_num_threads(threads)
    if device.type == "cuda":
        if deterministic:
            # read when cuBLAS starts: deterministic products need a workspace of fixed size
            os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
        torch.backends.cudnn.benchmark = not deterministic
        torch.backends.cudnn.deterministic = deterministic
        torch.backends.cudnn.allow_tf32 = not deterministic
        torch.backends.cuda.matmul.allow_tf32 = not deterministic
    # like use_deterministic_algorithms, without its import of the compiler, which predictions would
    # wait for
    strict = deterministic or device.type == "cpu"
    torch.set_deterministic_debug_mode("error" if strict else "default")
    # PyTorch fills each new tensor by default, hundreds a step, for code that reads uninitialised
    # memory
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


@contextlib.contextmanager
def explained(title: str) -> Iterator[None]:
    """Convert PyTorch's error for an operation without a deterministic kernel into ConfigError."""
    try:
        yield
    except RuntimeError as error:
        operation, phrase, _ = str(error).partition(" does not have a deterministic implementation")
        if not phrase:
            raise
        raise ConfigError(
            f"{title}: the operation {operation.split()[-1]} has no deterministic kernel; use "
            "another backbone or, on a GPU, deterministic: false in the protocol."
        ) from None


def computes_bf16(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 natively; otherwise autocast is slower than float32.

    CPUs need AMX (Intel since Sapphire Rapids) or AVX512_BF16 (also AMD since Zen 4).
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and (
        torch.cpu._is_amx_tile_supported() or torch.cpu._is_avx512_bf16_supported()
    )


def free_bytes(device: torch.device) -> int:
    """Free memory for this process in bytes: of the GPU, or of the machine within the limits of the
    job.
    """
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    available = re.search(r"MemAvailable:\s*(\d+) kB", _text(Path("/proc/meminfo")))
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if available:
        machine = 1024 * int(available[1])
    return min([machine, *control_group_free_bytes()])


def control_group_free_bytes(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> Iterator[int]:
    """Yield the free memory of each control group of this process, for example of a cluster job."""
    for line in _text(membership).splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers not in CGROUP_FILES:
            continue
        limit_file, used_file = CGROUP_FILES[controllers]
        group = root / controllers / path.lstrip("/")
        for folder in (group, *group.parents):
            limit, used = _text(folder / limit_file).strip(), _text(folder / used_file).strip()
            if limit.isdigit() and used.isdigit():
                yield max(int(limit) - int(used), 0)


def _text(path: Path) -> str:
    """Content of a file of the kernel; empty if it does not exist."""
    try:
        return path.read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def clock(device: torch.device) -> Callable[[], float]:
    """Clock for the cost of a job in seconds: processor time of this process over all cores or,
    with a GPU, wall time while the job holds it. Other work on the machine changes only the latter.
    """
    return time.process_time if device.type == "cpu" else time.monotonic


def peak_memory_mb(device: torch.device) -> float:
    """Peak memory in MB: of the GPU's allocator, or resident memory of this process on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return provenance.peak_memory_mb()


def describe(device: torch.device) -> dict[str, str | int]:
    """Return versions, device, driver, threads and determinism, for the record of a job."""
    found = {"device_name": platform.machine(), "cuda": "", "driver": ""}
    if device.type == "cuda":
        found["device_name"] = torch.cuda.get_device_name(device)
        found["cuda"] = torch.version.cuda or ""
        found["driver"] = driver_version(_text(Path("/proc/driver/nvidia/version")))
    return {
        **provenance.describe("numpy"),
        "torch": torch.__version__,
        "device": device.type,
        **found,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
    }


def run_record(spec: Mapping[str, object], seconds: float, device: torch.device) -> Facts:
    """Return the record of a job with a network: configuration, environment, time, memory."""
    return {
        "spec": dict(spec),
        "environment": describe(device),
        "seconds": seconds,
        "peak_memory_mb": peak_memory_mb(device),
        "finished": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def driver_version(text: str) -> str:
    """Version that the NVIDIA kernel driver states; empty if there is none.

    ``... UNIX x86_64 Kernel Module  535.104.05  ...`` or, of the open one, ``... UNIX Open Kernel
    Module for x86_64  580.65.06  ...``.
    """
    version = re.search(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s", text)
    return version[1] if version else ""
