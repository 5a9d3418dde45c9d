"""Fitted calibrators on disk: safetensors with a JSON description; nothing is unpickled."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from calgrid.errors import StateError
from calgrid.storage.atomic import replacing

#: key of the file's metadata that holds the description
METADATA_KEY = "calgrid"


def write_fitted(path: Path, state: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and their JSON description atomically; equal content gives equal bytes."""
    arrays = {name: np.ascontiguousarray(value) for name, value in state.items()}
    content = save(arrays, metadata={METADATA_KEY: json.dumps(dict(description), sort_keys=True)})
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def read_fitted(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_fitted` wrote: arrays and description.

    Raises
    ------
    StateError : the file is missing, damaged, or holds no calibrator.
    """
    if not path.is_file():
        raise StateError(f"The calibrator {path} does not exist: fit one and save it there.")
    path.open("rb").close()  # a file that is closed to us is not damaged
    try:
        with safe_open(path, framework="np") as stream:
            text = (stream.metadata() or {}).get(METADATA_KEY)
            # safe_open is no mapping: it cannot be iterated without keys()
            state = {name: stream.get_tensor(name) for name in stream.keys()}  # noqa: SIM118
            description = json.loads(text) if text else None
    except (SafetensorError, ValueError, OSError) as error:
        raise StateError(f"The calibrator {path} is damaged ({error}): fit and save it again.") from None
    if not isinstance(description, dict) or "hyperparameters" not in description:
        raise StateError(f"The file {path} holds no calibrator: give one that Calibrator.save wrote.")
    return state, description
