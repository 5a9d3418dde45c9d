"""Checkpoints as safetensors with a JSON description, and resume states."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from calgrid.errors import StateError
from calgrid.progress import log
from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.storage.atomic import write_bytes
from calgrid.storage.records import Facts, check_fingerprint

Tensors = dict[str, torch.Tensor]
#: length of the SHA-256 at the start of a resume state
DIGEST_BYTES = 32


def save_checkpoint(
    path: Path, states: Mapping[str, Mapping[str, torch.Tensor]], description: Facts
) -> None:
    """Write named state dictionaries into one safetensors file, atomically and reproducibly.

    The names of ``{"best.model": {"w": ...}}`` are joined with ``/``. ``description`` (JSON-like)
    has the fingerprint of the run.
    """
    flat = {}
    for group, state in states.items():
        for name, tensor in state.items():
            flat[f"{group}/{name}"] = tensor.detach().to("cpu").numpy()
    write_arrays(path, flat, description)


def load_checkpoint(path: Path, fingerprint: str | None = None) -> tuple[dict[str, Tensors], Facts]:
    """Read state dictionaries and description of a checkpoint.

    Raises
    ------
    StateError : the file is missing or damaged, or its fingerprint is not ``fingerprint``.
    """
    if not Path(path).is_file():
        raise StateError(f"The checkpoint {path} does not exist; train the run first.")
    arrays, description = read_arrays(path, "checkpoint", framework="pt")
    states: dict[str, Tensors] = {}
    for key, tensor in arrays.items():
        group, _, name = key.partition("/")
        states.setdefault(group, {})[name] = tensor
    check_fingerprint(description, fingerprint, f"checkpoint {path}", "train that run again")
    return states, description


def save_resume_state(path: Path, state: Mapping[str, object]) -> None:
    """Write resume state (tensors, numbers, strings and containers of them) after its SHA-256,
    atomically.
    """
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    content = buffer.getbuffer()
    write_bytes(path, hashlib.sha256(content).digest() + content)


def load_resume_state(path: Path) -> Any:
    """Read the dictionary of a resume state; None if it is missing, or damaged (then it is logged
    and deleted).
    """
    if not path.is_file():
        return None
    found = path.read_bytes()
    digest, content = found[:DIGEST_BYTES], found[DIGEST_BYTES:]
    if hashlib.sha256(content).digest() == digest:
        return torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    log(f"The resume state {path} is damaged: it is deleted and the run starts from its beginning.")
    path.unlink()
    return None
