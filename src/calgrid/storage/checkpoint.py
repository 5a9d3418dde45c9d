"""Checkpoints as safetensors with a JSON description, and resume state that survives a kill."""

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save

from calgrid.errors import StateError
from calgrid.progress import log
from calgrid.storage.atomic import write_bytes

Tensors = dict[str, torch.Tensor]


def save_checkpoint(
    path: Path, states: Mapping[str, Mapping[str, torch.Tensor]], description: Mapping[str, Any]
) -> None:
    """Write named state dictionaries into one safetensors file, atomically and with reproducible bytes.

    Parameters
    ----------
    states : for example ``{"best.model": {...}, "best.loss": {...}}``; keys are joined with ``/``.
    description : JSON-like; contains the fingerprint of the run.
    """
    flat = {
        f"{group}/{name}": tensor.detach().to("cpu").contiguous().clone()
        for group, state in states.items()
        for name, tensor in state.items()
    }
    save_file(flat, path, metadata={"calgrid": json.dumps(dict(description), sort_keys=True)})


def save_file(tensors: Tensors, path: Path, metadata: dict[str, str]) -> None:
    """Write safetensors by way of memory: only Python's own writing names a full disk as such."""
    write_bytes(path, save(tensors, metadata=metadata))


def load_checkpoint(path: Path, fingerprint: str | None = None) -> tuple[dict[str, Tensors], dict[str, Any]]:
    """Read what :func:`save_checkpoint` wrote: state dictionaries and description.

    Raises
    ------
    StateError : the file is missing or damaged, or its fingerprint is not ``fingerprint``.
    """
    if not Path(path).is_file():
        raise StateError(f"The checkpoint {path} does not exist: train the run first.")
    try:
        with safe_open(path, framework="pt") as stream:
            description = json.loads((stream.metadata() or {}).get("calgrid", "{}"))
            states: dict[str, Tensors] = {}
            for key in stream.keys():  # noqa: SIM118
                group, _, name = key.partition("/")
                states.setdefault(group, {})[name] = stream.get_tensor(key)
    except (SafetensorError, ValueError, OSError) as error:
        raise StateError(f"The checkpoint {path} is damaged ({error}): delete it and run again.") from None
    found = description.get("fingerprint")
    if fingerprint is not None and found != fingerprint:
        raise StateError(
            f"The checkpoint {path} belongs to another configuration or code version (fingerprint {found}, expected "
            f"{fingerprint}): train that run again."
        )
    return states, description


def save_resume_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write resume state atomically: tensors, numbers, strings and containers of them."""
    buffer = io.BytesIO()
    torch.save(dict(state), buffer)
    write_bytes(path, buffer.getbuffer())


def load_resume_state(path: Path) -> dict[str, Any] | None:
    """Read resume state; None where there is none, or where it is damaged (then said in the log and deleted)."""
    if not path.is_file():
        return None
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises many kinds for a truncated or foreign file
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        log(f"The resume state {path} is damaged ({reason}): it is deleted and the run starts from its beginning.")
        path.unlink()
        return None
