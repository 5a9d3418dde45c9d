"""The machine a run is on: device, threads, precision, and what must be written down about them."""

import platform
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from calgrid.errors import ConfigError
from calgrid.storage import provenance


def choose_device(wanted: str) -> torch.device:
    """Device for ``cpu``, ``cuda`` or ``auto``; ``cuda`` without a GPU raises ConfigError."""
    if wanted == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if wanted == "cuda" and not torch.cuda.is_available():
        raise ConfigError("device: 'cuda' was asked for but torch finds no GPU here; use device: cpu or auto.")
    return torch.device(wanted)


def prepare(device: torch.device, threads: int, training: bool = True) -> None:
    """Set the threads of this process and, for training on CPU, insist on reproducible kernels.

    Forward passes on CPU are reproducible anyway, and the switch costs a second of imports.
    """
    torch.set_num_threads(threads)
    if device.type == "cpu" and training:
        torch.use_deterministic_algorithms(True)
    if device.type == "cuda":
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True


def computes_bf16(device: torch.device) -> bool:
    """Does the device multiply bfloat16 natively? Autocast elsewhere is slower than float32."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return device.type == "cpu" and torch.cpu._is_amx_tile_supported()


def peak_memory_mb(device: torch.device) -> float:
    """Largest memory in MB: of the GPU's allocator, or resident memory of this process on CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**20
    return provenance.peak_memory_mb()


def describe(device: torch.device) -> dict[str, str | int]:
    """Where a stage ran, with versions, device, driver and threads, for its record."""
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return {
        **provenance.describe("numpy"),
        "torch": torch.__version__,
        "device": device.type,
        "device_name": gpu or platform.machine(),
        "cuda": (torch.version.cuda or "") if gpu else "",
        "driver": _driver() if gpu else "",
        "threads": torch.get_num_threads(),
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
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    found = re.search(r"Kernel Module\D*(\d+(?:\.\d+)+)", text)
    return found[1] if found else ""
