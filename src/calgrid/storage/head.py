"""The last linear layer beside the features that it reads: safetensors with ``weight`` (K, d) and ``bias`` (K,)."""

import json
from pathlib import Path

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from calgrid.errors import StateError
from calgrid.storage.atomic import write_bytes

FILE = "head.safetensors"
METADATA_KEY = "calgrid"
Head = tuple[np.ndarray, np.ndarray]


def write_head(path: Path, weight: np.ndarray, bias: np.ndarray, fingerprint: str) -> None:
    """Write weight (K, d) and bias (K,) as float32, atomically."""
    arrays = {"weight": np.ascontiguousarray(weight, np.float32), "bias": np.ascontiguousarray(bias, np.float32)}
    write_bytes(path, save(arrays, metadata={METADATA_KEY: json.dumps({"fingerprint": fingerprint})}))


def read_head(path: Path, fingerprint: str) -> Head | None:
    """Return weight (K, d) and bias (K,), or None where there is no file: the run's head is not linear.

    Raises
    ------
    StateError : the file is damaged or belongs to other logits.
    """
    if not path.is_file():
        return None
    try:
        with safe_open(path, framework="numpy") as stream:
            found = json.loads(stream.metadata()[METADATA_KEY])["fingerprint"]
            head = stream.get_tensor("weight"), stream.get_tensor("bias")
    except (SafetensorError, KeyError, TypeError, ValueError, OSError):
        raise StateError(f"The head {path} is damaged: delete it and run again.") from None
    if found != fingerprint:
        raise StateError(
            f"The head {path} belongs to another configuration or code version (fingerprint {found}, expected "
            f"{fingerprint}): delete it and run again."
        )
    return head
