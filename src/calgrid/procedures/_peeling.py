"""Which parameter tensors are still trained in each phase of layer peeling, and when phases begin."""

from collections.abc import Mapping

import numpy as np
from torch import nn

from calgrid.backbones.base import Backbone

#: number of parameter tensors of a network -> how many of them, from the input on, each phase trains
CUTS: Mapping[int, tuple[int, ...]] = {
    # lists of the official code
    62: (62, 60, 57, 54, 45, 39, 30, 24, 15, 9, 3),  # ResNet-18
    161: (161, 150, 141, 129, 120, 102, 93, 84, 72, 54, 33),  # ResNet-50
    # our reading: ends of blocks in the pattern of ResNet-50
    341: (341, 330, 321, 309, 255, 201, 156, 111, 72, 54, 33),  # ResNet-110
    314: (314, 303, 294, 282, 237, 201, 156, 111, 72, 54, 33),  # ResNet-101
    86: (86, 78, 72, 66, 57, 51, 45, 39, 30, 24, 18),  # WRN-26-10
    362: (362, 334, 310, 286, 262, 223, 187, 151, 115, 76, 40),  # DenseNet-121: dense layers, transitions
}


def trained_tensors(model: Backbone, most: int) -> list[int]:
    """Tensors that each phase trains, in the order of ``named_parameters``, descending from all of them.

    Networks without a list in :data:`CUTS`, our reading: all, then up to the end of each block from the top. As in
    the list of ResNet-50, the first peel takes the classifier with the last block, and the last phase keeps the
    first block with the stem. Of more cuts than ``most``, that many are taken, evenly spread.
    """
    total = len(list(model.parameters()))
    cuts = CUTS.get(total) or (total, *reversed(block_ends(model)[:-1]))
    chosen = np.linspace(0, len(cuts) - 1, min(most, len(cuts))).round().astype(int)
    return [cuts[position] for position in chosen]


def block_ends(model: Backbone) -> list[int]:
    """Tensors up to and with each block: the composite children of the stages behind the stem, or whole stages.

    The parts of a network of one stage count as its stages.
    """
    place = {id(parameter): number for number, parameter in enumerate(model.parameters(), start=1)}
    ends = set()
    for stage in list(model.stages)[1:] or _parts(model.stages[0]):
        blocks = [child for child in stage.children() if next(child.children(), None) is not None]
        ends |= {max((place[id(p)] for p in block.parameters()), default=0) for block in (*blocks, stage)}
    return sorted(ends - {0})


def _parts(stage: nn.Module) -> list[nn.Module]:
    """Children of a stage with parameters, below modules that only wrap another one."""
    children = [child for child in stage.children() if next(child.parameters(), None) is not None]
    return _parts(children[0]) if len(children) == 1 else children


def phase_starts(phases: int, gamma: float, epochs: int) -> np.ndarray:
    """First epoch of each phase, ``floor((k / n)^gamma E)``, in the arithmetic of the official code.

    No phase but the first begins before epoch 1: a classifier that is never trained would be of no use. (The
    official code compares each epoch with one start after the other, so two phases that start in the same epoch
    halt its schedule for good; here the later one counts.)
    """
    starts = (np.linspace(0, 1, phases + 1)[:-1] ** gamma * epochs).astype(int)
    starts[1:] = np.maximum(starts[1:], 1)
    return starts
