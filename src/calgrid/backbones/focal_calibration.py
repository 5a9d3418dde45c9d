"""Published checkpoints of torrvision/focal_calibration (Mukhoti et al., NeurIPS 2020) in our
networks of CIFAR.

Their files are state dictionaries of ``DataParallel`` with other module names. Their dense layers
prepend their output to the input and ours append it, so the channels of a dense block are in
another order.
"""

import re
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from calgrid.backbones.base import Backbone
from calgrid.backbones.weights import State, load_state, read_state
from calgrid.errors import DataError

#: their names of modules -> ours, of residual networks
RESIDUAL = (
    (re.compile(r"^conv1\."), "stages.0.0."),
    (re.compile(r"^bn1\."), "stages.0.1."),
    (re.compile(r"^layer(\d)\."), r"stages.\1."),
    (re.compile(r"\.downsample\."), ".shortcut."),
    (re.compile(r"^fc\."), "head."),
)
DENSE_LAYER = re.compile(r"dense(\d)\.(\d+)\.(bn1|conv1|bn2|conv2)\.(\w+)")
#: place of their modules in the branch of our dense layer, and in our transition
BRANCH = {"bn1": 0, "conv1": 2, "bn2": 3, "conv2": 5}
TRANSITION = {"bn": 0, "conv": 2}
BLOCKS = (1, 2, 3, 4)


def load_checkpoint(model: Backbone, path: Path) -> None:
    """Load a published file into our network of the same architecture.

    Raises
    ------
    DataError : it is damaged, or the checkpoint of another network.
    """
    theirs = read_state(path)
    try:
        ours = _dense(theirs) if "dense1.0.bn1.weight" in theirs else _residual(theirs)
    except (KeyError, IndexError) as error:
        raise DataError(
            f"The checkpoint {path} is that of another network than the run's: {error}"
        ) from None
    load_state(model, ours, path)


def _residual(theirs: Mapping[str, Tensor]) -> State:
    names = list(theirs)
    for pattern, replacement in RESIDUAL:
        names = [pattern.sub(replacement, name) for name in names]
    return dict(zip(names, theirs.values(), strict=True))


def _dense(theirs: Mapping[str, Tensor]) -> State:
    """Rename a dense network, and reorder the channels after each concatenation."""
    ours = {"stages.0.weight": theirs["conv1.weight"]}
    counts = dict.fromkeys(BLOCKS, 0)  # layers of each block
    for name, tensor in theirs.items():
        match = DENSE_LAYER.fullmatch(name)
        if match is None:
            continue
        block, layer, part, kind = int(match[1]), int(match[2]), match[3], match[4]
        counts[block] = max(counts[block], layer + 1)
        # a transition stands before the layers of all blocks but the first
        target = f"stages.{block}.{layer + (block > 1)}.branch.{BRANCH[part]}.{kind}"
        if part in ("bn1", "conv1"):
            ours[target] = _reordered(theirs, tensor, block, layer)
        else:
            ours[target] = tensor
    for block in BLOCKS[:-1]:
        for part, place in TRANSITION.items():
            for kind, tensor in _parts(theirs, f"trans{block}.{part}."):
                ours[f"stages.{block + 1}.0.{place}.{kind}"] = _reordered(
                    theirs, tensor, block, counts[block]
                )
    last = BLOCKS[-1]
    for kind, tensor in _parts(theirs, "bn."):
        ours[f"stages.{last}.{counts[last] + 1}.{kind}"] = _reordered(
            theirs, tensor, last, counts[last]
        )
    ours["head.weight"] = _reordered(theirs, theirs["linear.weight"], last, counts[last])
    return {**ours, "head.bias": theirs["linear.bias"]}


def _parts(theirs: Mapping[str, Tensor], prefix: str) -> list[tuple[str, Tensor]]:
    return [
        (name.removeprefix(prefix), tensor)
        for name, tensor in theirs.items()
        if name.startswith(prefix)
    ]


def _reordered(theirs: Mapping[str, Tensor], tensor: Tensor, block: int, layers: int) -> Tensor:
    """Reorder the input channels of a tensor after ``layers`` layers of a block.

    Theirs are those of the last layer, ..., of the first layer, of the block's input.
    """
    if not tensor.ndim:  # a count of batches
        return tensor
    inputs = len(theirs[f"dense{block}.0.bn1.weight"])
    growth = len(theirs[f"dense{block}.0.conv2.weight"])
    groups = torch.arange(layers * growth).view(layers, growth).flip(0).flatten()
    order = torch.cat([layers * growth + torch.arange(inputs), groups])
    return tensor.index_select(min(1, tensor.ndim - 1), order)
