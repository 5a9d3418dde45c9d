"""State dictionaries of files: safetensors, or of torch.save.

A file may hold several networks, and name the classes of the outputs: in keys beside those of the
state, or as JSON in the metadata of safetensors.
"""

import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.class_names import as_names
from calgrid.errors import DataError, visible
from calgrid.progress import log

State = dict[str, Tensor]
Value = TypeVar("Value")
#: start of all names in the state of a network inside DataParallel, torch.compile or Lightning
WRAPPERS = ("module.", "_orig_mod.", "model.")
#: entry of torch's AveragedModel beside the entries of its network
COUNT = "n_averaged"
#: keys of the state of a network, most preferred first: averaged weights, as timm and torchvision's
#: references test these; the last one is that of calgrid's own files
NETWORKS = ("state_dict_ema", "model_ema", "state_dict", "model", "last.model")
#: keys of the names of the classes: lists in the order of the outputs, or pairs of name and place
CLASSES = ("classes", "class_names", "categories", "class_to_idx", "idx_to_class")
#: key under which torchvision stores names of classes
ABOUT = "meta"


def read_state(path: Path, key: str | None = None) -> State:
    """Return the tensors of the network of a file by name, without the names of wrappers.

    Parameters
    ----------
    key : name of the network in a file of several; None: the first of ``NETWORKS``, which is logged
        if there are others.

    Raises
    ------
    DataError : the file holds anything but named tensors, or several other networks, or none of
        this key.
    """
    try:
        content = load_file(path) if path.suffix == ".safetensors" else _load(path)
        networks = _networks(content)
    except Exception as error:  # torch raises many kinds for a truncated or foreign file
        raise _unreadable(path, type(error).__name__) from None
    known = [name for name in NETWORKS if name in networks]
    if key is None:
        key = next(iter(known or networks), None)
        if len(known) > 1:
            log(
                f"{path} holds the networks {', '.join(known)}: '{key}' is taken; weights_key "
                "names another one."
            )
    if (key is not None and key not in networks) or (len(networks) > 1 and not known):
        raise DataError(
            f"{path} holds the networks {visible(', '.join(networks)) or 'of no key'}; name one of "
            "them as weights_key of the protocol."
        )
    state = networks.get(key or "", content)
    tensors = {name: value for name, value in state.items() if isinstance(value, Tensor)}
    others = state.keys() - tensors.keys() - {*CLASSES, ABOUT}
    if not tensors or others:
        raise _unreadable(path, f"'{min(others)}' is no tensor" if others else "it has no tensor")
    return {name: tensor.detach() for name, tensor in unwrapped(tensors).items()}


def _load(path: Path, mapped: bool = False) -> Any:
    return torch.load(path, map_location="cpu", weights_only=True, mmap=mapped)


def _unreadable(path: Path, reason: str) -> DataError:
    return DataError(
        f"The weights in {path} cannot be read ({reason}): it must be the state dictionary of a "
        "network, as safetensors or of torch.save; replace or remove the file and run again."
    )


def _networks(content: Mapping[str, object]) -> dict[str, dict[str, object]]:
    """State dictionaries in a file by their keys, such as ``state_dict``; calgrid joins keys and
    names by ``/``.
    """
    found: dict[str, dict[str, object]] = {}
    for name, value in content.items():
        key, slash, rest = str(name).partition("/")
        if slash:
            found.setdefault(key, {})[rest] = value
        elif isinstance(value, Mapping) and any(isinstance(one, Tensor) for one in value.values()):
            found[key] = dict(value)
    return found


def unwrapped(state: Mapping[str, Value]) -> dict[str, Value]:
    """Return entries by their names in the bare network: without the prefix that a wrapper gives to
    all, in any nesting.
    """
    found = {name: value for name, value in state.items() if name != COUNT}
    for wrapper in WRAPPERS:
        if found and all(name.startswith(wrapper) for name in found):
            return unwrapped({name.removeprefix(wrapper): found[name] for name in found})
    return found


def read_class_names(path: Path) -> list[str] | None:
    """Return the names of the classes in the order of the outputs; None if a file has none, or
    cannot be read.
    """
    try:
        if path.suffix == ".safetensors":
            with safe_open(path, framework="pt") as file:
                about = file.metadata() or {}
            content = {key: json.loads(about[key]) for key in CLASSES if key in about}
        else:
            content = _load(path, zipfile.is_zipfile(path))  # tensors stay on the disk
        places = [content, content.get(ABOUT), *(content.get(key) for key in NETWORKS)]
        return _first_names(filter(lambda place: isinstance(place, Mapping), places))
    except Exception:  # as in read_state, which refuses the file
        return None


def _first_names(places: Iterable[Any]) -> list[str] | None:
    for place in places:
        for key in filter(place.__contains__, CLASSES):
            names = place[key]
            if isinstance(names, Mapping):
                names = _in_order(names, inverted=key == "idx_to_class")
            if isinstance(names, list | tuple) and (found := as_names(list(names))):
                return found
    return None


def _in_order(pairs: Mapping[Any, Any], inverted: bool) -> list[Any] | None:
    """Names by their places, which count from 0 or from 1; None for other places.

    ``pairs`` are name -> place, or, if ``inverted``, place -> name.
    """
    by_place = {int(place): name for place, name in pairs.items()} if inverted else {}
    if not inverted:
        by_place = {int(place): name for name, place in pairs.items()}
    places = sorted(by_place)
    complete = len(places) == len(pairs) and places[0] in (0, 1)
    if not complete or places != list(range(places[0], places[0] + len(places))):
        return None
    return [by_place[place] for place in places]


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
    names = unwrapped(model.names)
    renamed = {names.get(name, name): tensor for name, tensor in state.items()}
    try:
        model.load_state_dict({**counts, **renamed})
    except RuntimeError as error:
        reason = str(error).splitlines()[-1].strip()
        raise DataError(
            f"The checkpoint {path} is that of another network than the run's: {reason}"
        ) from None
