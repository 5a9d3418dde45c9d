"""State dictionaries of files: safetensors, or of torch.save.

A file may name the classes of the outputs, as ``classes`` (a list) or ``class_to_idx`` (name ->
place): keys beside those of the state, or JSON in the metadata of safetensors.
"""

import json
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.class_names import as_names
from calgrid.errors import DataError

State = dict[str, Tensor]
#: start of names in the state of a ``DataParallel`` network
WRAPPER = "module."
#: keys under which training scripts store the state beside other things
NESTED = ("state_dict", "model")
#: keys of the names of the classes
CLASSES, PLACES = "classes", "class_to_idx"


def read_state(path: Path) -> State:
    """Return the tensors of a file by name, without the wrapper's name.

    Raises
    ------
    DataError : it holds anything but named tensors.
    """
    try:
        if path.suffix == ".safetensors":
            state = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
        for key in NESTED:
            state = state.get(key, state)
        for key in (CLASSES, PLACES):
            if not isinstance(state.get(key), Tensor):
                state.pop(key, None)
        return {name.removeprefix(WRAPPER): tensor.detach() for name, tensor in state.items()}
    except Exception as error:  # torch raises many kinds for a truncated or foreign file
        raise DataError(
            f"The weights in {path} cannot be read ({type(error).__name__}): it must be the state "
            "dictionary of a network, as safetensors or of torch.save; replace or remove the file "
            "and run again."
        ) from None


def read_class_names(path: Path) -> list[str] | None:
    """Return the names of the classes in the order of the outputs; None if a file has none, or
    cannot be read.
    """
    try:
        about = _beside_tensors(path)
        if PLACES in about:
            places = about[PLACES]
            names = sorted(places, key=places.get)
            complete = [places[name] for name in names] == list(range(len(names)))
            return as_names(names) if complete else None
        return as_names(about.get(CLASSES))
    except Exception:  # as in read_state, which refuses the file
        return None


def _beside_tensors(path: Path) -> dict[str, Any]:
    """What a file has beside its tensors."""
    if path.suffix == ".safetensors":
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
        return {key: json.loads(metadata[key]) for key in (CLASSES, PLACES) if key in metadata}
    # tensors stay on the disk
    mapped = zipfile.is_zipfile(path)
    content = torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)
    return {key: content[key] for key in (CLASSES, PLACES) if key in content}


def load_state(model: Backbone, state: State, path: Path) -> None:
    """Load the state of a file into a network of the same architecture.

    Raises
    ------
    DataError : it is the state of another network.
    """
    # old versions of torch have no batch counts, which do not affect predictions
    counts = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    renamed = {model.names.get(name, name): tensor for name, tensor in state.items()}
    try:
        model.load_state_dict({**counts, **renamed})
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DataError(
            f"The checkpoint {path} is that of another network than the run's: {reason}"
        ) from None
