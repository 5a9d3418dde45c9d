"""State dictionaries of files: safetensors, or of torch.save."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.errors import DataError

State = dict[str, Tensor]
#: start of names in the state of a ``DataParallel`` network
WRAPPER = "module."
#: keys under which training scripts store the state beside other things
NESTED = ("state_dict", "model")


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
        return {name.removeprefix(WRAPPER): tensor.detach() for name, tensor in state.items()}
    except Exception as error:  # torch raises many kinds for a truncated or foreign file
        raise DataError(
            f"The weights in {path} cannot be read ({type(error).__name__}): it must be the state "
            "dictionary of a network, as safetensors or of torch.save; replace or remove the file "
            "and run again."
        ) from None


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
