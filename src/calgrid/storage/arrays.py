"""Named arrays and a JSON description in one safetensors file, with a checksum of both."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from calgrid.errors import StateError
from calgrid.storage.atomic import parse_json, write_bytes
from calgrid.storage.records import MEND, Facts, check_fingerprint

#: metadata key of the description, and key of the checksum within it: safetensors writes several
#: metadata keys in random order
DESCRIPTION, CHECKSUM = "calgrid", "sha256"
#: weight (K, d) and bias (K,) of the last linear layer
Head = tuple[np.ndarray, np.ndarray]


def write_arrays(path: Path, arrays: Mapping[str, np.ndarray], description: Facts) -> None:
    """Write arrays and their description atomically; equal content gives equal bytes.

    The file is built in memory because only Python's own writing reports a full disk as such.
    """
    held = {name: np.asarray(values, order="C") for name, values in arrays.items()}
    text = json.dumps(
        {**description, CHECKSUM: digest_of_arrays(held, description)}, sort_keys=True
    )
    write_bytes(path, save(held, metadata={DESCRIPTION: text}))


def read_arrays(
    path: Path, what: str, mend: str = MEND, framework: str = "np"
) -> tuple[dict[str, Any], Facts]:
    """Read a file of :func:`write_arrays`, as arrays (``framework="np"``) or tensors (``"pt"``).

    Raises
    ------
    StateError : the file is damaged (not one bit may have changed); the message has its name
        ``what`` and the fix ``mend``.
    """
    try:
        with safe_open(path, framework=framework) as stream:
            description = parse_json((stream.metadata() or {}).get(DESCRIPTION, "{}"))
            arrays = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118  (it is no mapping)
        if CHECKSUM not in description:
            raise ValueError("it has no checksum, so calgrid did not write it")
        if description.pop(CHECKSUM) != digest_of_arrays(arrays, description):
            raise ValueError("its content does not match its checksum")
        return arrays, description
    except (SafetensorError, TypeError, ValueError, OSError) as error:
        raise StateError(f"The {what} {path} is damaged ({error}); {mend}.") from None


def digest_of_arrays(arrays: Mapping[str, object], description: Facts) -> str:
    """SHA-256 of names, types, shapes and bytes of all arrays or tensors, and the description; None
    is no array.
    """
    content = hashlib.sha256(json.dumps(dict(description), sort_keys=True).encode())
    for name in sorted(name for name, values in arrays.items() if values is not None):
        values = np.asarray(arrays[name], order="C")
        content.update(f"\0{name}\0{values.dtype.str}{values.shape}\0".encode())
        content.update(values.reshape(-1).view(np.uint8).data)
    return content.hexdigest()


def write_head(path: Path, weight: np.ndarray, bias: np.ndarray, fingerprint: str) -> None:
    """Write the last linear layer of a network as float32, atomically."""
    arrays = {"weight": weight.astype(np.float32), "bias": bias.astype(np.float32)}
    write_arrays(path, arrays, {"fingerprint": fingerprint})


def read_head(path: Path, fingerprint: str) -> Head | None:
    """Return the last layer of a run, or None without a file, if the layer is not linear.

    Raises
    ------
    StateError : the file is damaged or belongs to other logits.
    """
    if not path.is_file():
        return None
    arrays, description = read_arrays(path, "head")
    check_fingerprint(description, fingerprint, f"head {path}")
    return arrays["weight"], arrays["bias"]
