"""The last linear layer beside the features that it reads: safetensors with ``weight`` (K, d) and ``bias`` (K,)."""

from pathlib import Path

import numpy as np

from calgrid.storage.arrays import read_arrays, write_arrays
from calgrid.storage.records import check_fingerprint

Head = tuple[np.ndarray, np.ndarray]


def write_head(path: Path, weight: np.ndarray, bias: np.ndarray, fingerprint: str) -> None:
    """Write weight (K, d) and bias (K,) as float32, atomically."""
    write_arrays(
        path, {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}, {"fingerprint": fingerprint}
    )


def read_head(path: Path, fingerprint: str) -> Head | None:
    """Return weight (K, d) and bias (K,), or None where there is no file: the run's head is not linear.

    Raises
    ------
    StateError : the file is damaged or belongs to other logits.
    """
    if not path.is_file():
        return None
    arrays, description = read_arrays(path, "head")
    check_fingerprint(description, fingerprint, f"head {path}")
    return arrays["weight"], arrays["bias"]
