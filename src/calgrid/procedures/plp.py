"""PLP, progressively layer-peeled training: freeze layer after layer, from the classifier
downwards.

Wang & Zhang, Calibration Bottleneck: Over-compressed Representations are Less Calibratable, ICML
2024 (official code dengbaowang/PLP, ``train.py`` and ``my_sgd.py``).
"""

from collections.abc import Mapping

import numpy as np
from torch import nn

from calgrid.backbones.base import Backbone
from calgrid.components.registry import register
from calgrid.training.procedure import Procedure, Training

#: number of parameter tensors of a network -> number of tensors, from the input, that each phase
#: trains
CUTS: Mapping[int, tuple[int, ...]] = {
    # lists of the official code
    62: (62, 60, 57, 54, 45, 39, 30, 24, 15, 9, 3),  # ResNet-18
    161: (161, 150, 141, 129, 120, 102, 93, 84, 72, 54, 33),  # ResNet-50
    # our interpretation: ends of blocks as for ResNet-50
    341: (341, 330, 321, 309, 255, 201, 156, 111, 72, 54, 33),  # ResNet-110
    314: (314, 303, 294, 282, 237, 201, 156, 111, 72, 54, 33),  # ResNet-101
    86: (86, 78, 72, 66, 57, 51, 45, 39, 30, 24, 18),  # WRN-26-10
    362: (
        362,
        334,
        310,
        286,
        262,
        223,
        187,
        151,
        115,
        76,
        40,
    ),  # DenseNet-121: dense layers, transitions
}


def trained_tensors(model: Backbone, most: int) -> list[int]:
    """Number of tensors that each phase trains, in the order of ``named_parameters``, descending
    from all.

    For networks without a list in :data:`CUTS`, our interpretation: all, then up to the end of each
    block from the top. As for ResNet-50, the first peel freezes the classifier with the last block,
    and the last phase trains the first block with the stem. At most ``most`` cuts are used, evenly
    spaced.
    """
    total = len(list(model.parameters()))
    cuts = CUTS.get(total) or (total, *reversed(block_ends(model)[:-1]))
    chosen = np.linspace(0, len(cuts) - 1, min(most, len(cuts))).round().astype(int)
    return [cuts[position] for position in chosen]


def block_ends(model: Backbone) -> list[int]:
    """Tensors up to the end of each block: the composite children of the stages after the stem, or
    whole stages.

    For a network with one stage, its parts are used as stages.
    """
    place = {id(parameter): number for number, parameter in enumerate(model.parameters(), start=1)}
    ends: set[int] = set()
    for stage in list(model.stages)[1:] or _parts(model.stages[0]):
        blocks = [child for child in stage.children() if next(child.children(), None) is not None]
        for block in (*blocks, stage):
            numbers = [place[id(parameter)] for parameter in block.parameters()]
            if numbers:
                ends.add(max(numbers))
    return sorted(ends)


def _parts(stage: nn.Module) -> list[nn.Module]:
    """Children of a stage with parameters, without pure wrapper modules."""
    children = [child for child in stage.children() if next(child.parameters(), None) is not None]
    return _parts(children[0]) if len(children) == 1 else children


def phase_starts(phases: int, gamma: float, epochs: int) -> np.ndarray:
    """First epoch of each phase, ``floor((k / n)^gamma E)``, in the arithmetic of the official
    code.

    Only the first phase begins before epoch 1, so that the classifier is trained. (In the official
    code, two phases with the same first epoch stop the schedule; here the later one is used.)
    """
    starts = (np.linspace(0, 1, phases + 1)[:-1] ** gamma * epochs).astype(int)
    starts[1:] = np.maximum(starts[1:], 1)
    return starts


@register(
    source="Wang & Zhang, ICML 2024; dengbaowang/PLP train.py, my_sgd.py",
    losses="any",
    several_gpus=True,
    cuda_graph=True,
    averaged_weights=True,
    limits={"gamma": "(0, inf)", "cuts": "[1, inf)"},
)
class ProgressiveLayerPeeling(Procedure):
    """Phase k of n trains only the first c_k parameter tensors, counted from the input.

    Phase k begins at epoch ``floor((k / n)^gamma E)`` of E. As in the official optimiser, frozen
    tensors are skipped: no gradient, no weight decay, no change of their momentum. All BatchNorm
    layers stay in training mode and update their running statistics. Gradient clipping, if any,
    uses only the trained tensors (the official runs do not clip). Parameters of the loss are never
    frozen.

    The cuts are those of the official code for ResNet-18 and ResNet-50 and our interpretation for
    other networks, see :data:`CUTS`. The official Tiny-ImageNet runs start from ImageNet weights;
    here the protocol decides. The method aims at calibration after temperature scaling.

    Parameters
    ----------
    gamma : above 0; below 1 delays the first peel, above 1 advances it.
    cuts : number n of phases, at least 1; fewer if the network has fewer blocks.
    """

    gamma: float = 1.0
    cuts: int = 11

    def begin_training(self, model: Backbone, training: Training) -> None:
        """Compute the phases."""
        self._trained = trained_tensors(model, self.cuts)
        self._starts = phase_starts(len(self._trained), self.gamma, training.epochs)

    def begin_epoch(self, model: Backbone, epoch: int) -> None:
        """Set the frozen tensors of the epoch's phase, which depend only on the epoch."""
        super().begin_epoch(model, epoch)
        self._frozen = list(model.parameters())[self.trained_tensors(epoch) :]

    def trained_tensors(self, epoch: int) -> int:
        """Number of parameter tensors, from the input on, that an epoch trains."""
        return self._trained[int(np.searchsorted(self._starts, epoch, side="right")) - 1]

    def before_step(self, model: Backbone) -> None:
        """Remove gradients above the cut: optimisers skip tensors without a gradient."""
        for parameter in self._frozen:
            parameter.grad = None

    def end_epoch(
        self, model: Backbone, epoch: int, means: Mapping[str, float]
    ) -> dict[str, float]:
        """Return the number of tensors that the epoch trained."""
        return {"trained_tensors": float(self.trained_tensors(epoch))}
