"""MaC-Cal: retrain the classifier on frozen features with a new random mask in each epoch.

Ni, Zhao, Yang & Guo, Deep Neural Network Calibration by Reducing Classifier Shift with Stochastic
Masking, Pattern Recognition 177:113217, 2026 (arXiv 2508.09116). No official code was found.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Literal

import torch
from torch import nn

from calgrid.components.registry import register
from calgrid.procedures.masked_linear import EvalMask, MaskedLinear, masked_layers
from calgrid.procedures.second_stage import FACTS, FrozenFeatures, SecondStage, load_checked
from calgrid.progress import log
from calgrid.training.procedure import State
from calgrid.training.seeds import generator

#: consecutive epochs at the smallest retention rate before a warning
FLOOR_EPOCHS = 10


@register(
    source="Ni et al., Pattern Recognition 177:113217, 2026 (arXiv 2508.09116), Sec. 4.2, Eq. 8-13",
    **FACTS,
    dataset_defaults={"digits": {"bottleneck": 256}},
    limits={
        "lambda_": "[0, inf)",
        "p0": "(0, 1]",
        "p_min": "[0, p0]",
        "tau0": "[0, inf)",
        "kappa": "[0, inf)",
        "bottleneck": "[1, 16384]",
    },
)
class MaskedClassifierCalibration(SecondStage):
    """Masked two-layer head on frozen features; the retention rate adapts to accuracy and
    confidence.

    At the start of epoch t each weight of a layer is kept with probability p_t, for the whole
    epoch::

        M ~ Bernoulli(p_t), W' = M * W, z = W2' relu(W1' h + b1) + b2                    (8), (9)
        W <- W - eta M * dL/dW'                                                          (11)
        p_{t+1} = clip(p_t + clip(lambda acc_t - conf_t, -tau_t, tau_t), p_min, 1)       (12)
        tau_t = tau0 exp(-kappa t / T)                                                   (13)

    The text of the paper specifies: frozen extractor, randomly initialised two-layer bottleneck,
    one Bernoulli mask per epoch, masked gradients, cross-entropy, adaptation by training accuracy
    (down-weighted) and mean training confidence, a threshold on the change that decays
    exponentially, deterministic inference, 40 epochs at rate 0.1.

    Our interpretation, because we could not obtain the formulas and most constants: independent
    masks for the two layers and none for biases; no division by p; accuracy and confidence over the
    masked training batches of the epoch; the additive form of (12), the form of (13), and the
    constants p0, tau0, kappa, p_min and the width of the bottleneck (a later paper used lambda 0.7
    for all data sets); prediction with the last mask. For the ablation, masked retraining is
    ``head: linear`` (warm start) with the straight-through gradient, because plain autograd of M *
    W already masks the gradient.

    A masked weight is constant for the epoch: no gradient, no weight decay, no momentum update. Its
    momentum buffer decays in the optimiser by the factor ``momentum`` per step: to nothing in a
    CIFAR epoch of 352 steps, to 0.53 in six steps of the protocol ``digits``; the rest acts when
    the weight is kept again. The total change of p is at most about tau0 T / kappa, 0.4 in 40
    epochs but 0.2 in 20: a shorter second stage has a narrower range of p.

    Epochs, batch size and learning rate are those of ``second_stage`` in the protocol; an epoch
    needs enough steps to train with its mask. docs/maccal_reading.md has the effects of the
    interpretations on the embedded digits.

    Parameters
    ----------
    lambda_ : factor of the training accuracy in (12).
    p0 : retention rate of the first epoch. p_min : smallest rate.
    tau0, kappa : threshold (13) of the first epoch, and its decay.
    head : ``bottleneck``, randomly initialised, or ``linear``, initialised with the first stage's
        head.
    bottleneck : hidden units, of which the paper states no number; 256 on digits
        (docs/maccal_reading.md).
    gradient : ``masked`` (11), or ``straight_through``: all weights get the gradient of the
        effective weights.
    sparsity : ``decaying`` (12) and (13), ``static`` (12) with tau_t = tau0, ``fixed`` p_t = p0.
    mask_mode : ``keep`` masked weights for later epochs, or set them to ``zero`` at the start of
        each epoch.
    eval_mask : predict with the ``last`` epoch's mask, without a mask (``none``), or with p W
        (``expect``).
    cached : compute the training features once, without augmentation (a faster variant).
    """

    resumed = ("_retention", "_masked_epoch", "_floor_epochs")

    def __init__(
        self,
        *,
        lambda_: float = 0.7,
        p0: float = 0.5,
        tau0: float = 0.05,
        kappa: float = 5.0,
        p_min: float = 0.1,
        head: Literal["bottleneck", "linear"] = "bottleneck",
        bottleneck: int = 512,
        gradient: Literal["masked", "straight_through"] = "masked",
        sparsity: Literal["decaying", "static", "fixed"] = "decaying",
        mask_mode: Literal["keep", "zero"] = "keep",
        eval_mask: Literal["last", "none", "expect"] = "last",
        cached: bool = False,
    ) -> None:
        super().__init__(cached=cached)
        self.lambda_ = lambda_
        self.p0 = p0
        self.p_min = p_min
        self.tau0 = tau0
        self.kappa = kappa
        self.head = head
        self.bottleneck = bottleneck
        self.straight_through = gradient == "straight_through"
        self.adaptive = sparsity != "fixed"
        self.decaying = sparsity == "decaying"
        self.keep = mask_mode == "keep"
        self.eval_mask: EvalMask = eval_mask
        self._retention = p0
        self._masked_epoch = -1
        self._floor_epochs = 0

    def build_head(self, num_features: int, num_classes: int) -> nn.Module:
        """Masked head from features (N, d) to logits (N, K)."""
        masked = partial(
            MaskedLinear, straight_through=self.straight_through, eval_mask=self.eval_mask
        )
        if self.head == "linear":
            return masked(num_features, num_classes)
        first, second = masked(num_features, self.bottleneck), masked(self.bottleneck, num_classes)
        return nn.Sequential(first, nn.ReLU(), second)

    def load_first_stage(self, model: FrozenFeatures, state: State) -> None:
        """Load the body of the first stage, and its head for ``head: linear``.

        Raises
        ------
        StateError : the first stage's network is not the one that the model was built as.
        """
        super().load_first_stage(model, state)
        if self.head == "linear":
            head = dict(model.head.named_buffers())
            for name, tensor in state.items():
                if name.startswith("head."):
                    head[name.removeprefix("head.")] = tensor
            load_checked(model.head, head, "linear head")

    def begin_epoch(self, model: FrozenFeatures, epoch: int) -> None:
        """Draw the masks of an epoch, unless a resumed run has restored them."""
        model.train()
        if self._masked_epoch == epoch:
            return
        for number, layer in enumerate(masked_layers(model.head)):
            # on the CPU, so that a GPU draws the same masks
            rng = generator("cpu", self.training.seed, "mask", epoch, number)
            mask = torch.rand(layer.weight.shape, generator=rng) < self._retention
            layer.mask_weights(mask.to(layer.mask.device), self._retention, keep=self.keep)
        self._masked_epoch = epoch

    def after_step(self, model: FrozenFeatures) -> None:
        """Restore masked weights."""
        for layer in masked_layers(model.head):
            layer.undo_masked_steps()

    def end_epoch(
        self, model: FrozenFeatures, epoch: int, means: Mapping[str, float]
    ) -> dict[str, float]:
        """Update the retention rate by (12) and (13); return rate and inputs of the update."""
        used = self._retention
        accuracy, confidence = means["train_accuracy"], means["train_confidence"]
        clip = self.clip(epoch)  # 0 for fixed rates
        self._retention = self.next_retention(used, accuracy, confidence, clip)
        at_floor = self.adaptive and self._retention == self.p_min
        self._floor_epochs = self._floor_epochs + 1 if at_floor else 0
        if self._floor_epochs == FLOOR_EPOCHS:
            log(
                f"maccal: the retention rate has been at p_min = {self.p_min:g} for {FLOOR_EPOCHS} "
                f"epochs up to epoch {epoch + 1}, where accuracy suffers: look at it beside the "
                "calibration error, or raise lambda_."
            )
        return {
            "retention": used,
            "masked_accuracy": accuracy,
            "masked_confidence": confidence,
            "clip": clip,
        }

    def clip(self, epoch: int) -> float:
        """Maximum change tau_t of the retention rate after an epoch, (13)."""
        if not self.adaptive:
            return 0.0
        if not self.decaying:
            return self.tau0
        return self.tau0 * math.exp(-self.kappa * epoch / self.training.epochs)

    def next_retention(
        self, retention: float, accuracy: float, confidence: float, clip: float
    ) -> float:
        """Retention rate p_{t+1} after an epoch with this accuracy and mean confidence, (12)."""
        change = min(max(self.lambda_ * accuracy - confidence, -clip), clip)
        return min(max(retention + change, self.p_min), 1.0)
