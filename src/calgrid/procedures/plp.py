"""PLP, progressively layer-peeled training: freeze layer after layer, from the classifier downwards.

Wang & Zhang, Calibration Bottleneck: Over-compressed Representations are Less Calibratable, ICML 2024 (official code
dengbaowang/PLP, ``train.py`` and ``my_sgd.py``).
"""

from collections.abc import Mapping

import numpy as np

from calgrid.backbones.base import Backbone
from calgrid.procedures._peeling import phase_starts, trained_tensors
from calgrid.registry import register
from calgrid.training.procedure import Procedure, Training


@register(
    source="Wang & Zhang, ICML 2024; dengbaowang/PLP train.py, my_sgd.py",
    losses="any",
    limits={"gamma": "(0, inf)", "cuts": "[1, inf)"},
)
class ProgressiveLayerPeeling(Procedure):
    """Phase k of n trains only the first c_k parameter tensors, counted from the input.

    Phase k begins at epoch ``floor((k / n)^gamma E)`` of E. As in the official optimiser, frozen tensors are skipped
    altogether: no gradient, no weight decay, and their momentum rests. The network computes as before: all BatchNorm
    layers stay in training mode, and their running statistics move above the cut too. Gradient clipping, where the
    protocol has it, sees the trained tensors only (the official runs do not clip). Parameters of the loss are no part
    of the network and are never frozen.

    The cuts are those of the official code for ResNet-18 and ResNet-50 and our reading elsewhere, see ``_peeling``.
    The official Tiny-ImageNet runs start from ImageNet weights; here every protocol starts as it does for the other
    methods. The method aims at calibration after temperature scaling.

    Parameters
    ----------
    gamma : above 0; below 1 delays the first peel, above 1 hastens it.
    cuts : number n of phases, at least 1; fewer where the network has fewer blocks.
    """

    def __init__(self, *, gamma: float = 1.0, cuts: int = 11) -> None:
        super().__init__()
        self.gamma, self.cuts = gamma, cuts

    def begin_training(self, model: Backbone, training: Training) -> None:
        """Lay out the phases."""
        self._trained = trained_tensors(model, self.cuts)
        self._starts = phase_starts(len(self._trained), self.gamma, training.epochs)

    def begin_epoch(self, model: Backbone, epoch: int) -> None:
        """Look up what the epoch's phase freezes: by the epoch alone, so that it needs no state."""
        super().begin_epoch(model, epoch)
        self._frozen = list(model.parameters())[self.trained_tensors(epoch) :]

    def trained_tensors(self, epoch: int) -> int:
        """Number of parameter tensors, from the input on, that an epoch trains."""
        return self._trained[int(np.searchsorted(self._starts, epoch, side="right")) - 1]

    def before_step(self, model: Backbone) -> None:
        """Drop gradients above the cut: optimisers skip a tensor without one."""
        for parameter in self._frozen:
            parameter.grad = None

    def end_epoch(self, model: Backbone, epoch: int, means: Mapping[str, float]) -> dict[str, float]:
        """Return how many tensors the epoch trained."""
        return {"trained_tensors": float(self.trained_tensors(epoch))}
