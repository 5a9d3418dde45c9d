"""Fitted calibrators on disk: safetensors with a JSON description; nothing is unpickled."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from calgrid.errors import StateError
from calgrid.storage.arrays import read_arrays, write_arrays


def write_fitted(path: Path, state: Mapping[str, NDArray[Any]], description: Mapping[str, Any]) -> None:
    """Write arrays and their JSON description atomically; equal content gives equal bytes."""
    write_arrays(path, state, description)


def read_fitted(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Read what :func:`write_fitted` wrote: arrays and description.

    Raises
    ------
    StateError : the file is missing, damaged, or holds no calibrator.
    """
    if not path.is_file():
        raise StateError(f"The calibrator {path} does not exist: fit one and save it there.")
    path.open("rb").close()  # a file that is closed to us is not damaged
    state, description = read_arrays(path, "calibrator", "fit and save it again")
    if not isinstance(description, dict) or "hyperparameters" not in description:
        raise StateError(f"The file {path} holds no calibrator: give one that Calibrator.save wrote.")
    return state, description
