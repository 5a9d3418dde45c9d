"""Masked inference: accuracy and confidence with part of the last layer's weights set to zero
(MaC-Cal, Fig. 1).
"""

from typing import cast

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from calgrid.components.registry import register
from calgrid.metrics import METRICS, check_probabilities, from_logits
from calgrid.probes.base import Layer, Probe, Subject
from calgrid.training.seeds import generator

#: metrics beside the mean confidence
SCORES = ("accuracy", "nll", "brier", "ece", "ece_debiased", "ece_null")


@register(
    source="MaC-Cal (arXiv 2508.09116), Sec. 4.1 and Fig. 1b, c",
    needs_linear_head=True,
    limits={
        "ratios": "[0, 1]",
        "draws": "[1, 1000]",
        "batch": "[1, inf)",
        "bins": "[2, 1000]",
        "seed": "[0, inf)",
    },
)
class MaskedInference(Probe):
    """Scores of a trained network under masks on the weights of its linear head, without
    retraining.

    ``z = (M * W) h + b``: a fraction r of the weights W (K, d) is set to zero, without rescaling;
    the bias is kept. ``random`` masks each weight with probability r; the masks of one draw are
    nested over r. As in the paper there is a new mask "at each forward pass", here of ``batch``
    images, as the paper does not give a number; scores are over all test images. ``magnitude``
    masks the r K d weights of smallest magnitude, for all images. Retraining the head with masks is
    a method: ``maccal`` with ``head: linear, sparsity: fixed, p0: 1 - r``.

    Columns: ``mode``, ``ratio``, ``draw`` (0 for ``magnitude``), ``confidence`` (mean largest
    probability), ``accuracy``, ``nll``, ``brier``, ``ece``, ``ece_debiased``, ``ece_null``: of the
    test split, fractions except nll (nats) and brier (sum over classes).

    Parameters
    ----------
    ratios : fractions of masked weights. draws : number of passes over the test split with random
        masks.
    batch : test images per random mask; 128 is the paper's batch size in training.
    bins : number of equal-width bins of calibration errors. seed : seed of the random masks.
    """

    ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    draws: int = 3
    batch: int = 128
    bins: int = 15
    seed: int = 0

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row per mode, ratio and draw."""
        layer = cast(Layer, subject.last_layer())  # not None: the probe requires a linear head
        features = torch.from_numpy(subject.outputs.features).to(subject.device)
        ranks = magnitude_ranks(layer.weight)
        smallest = [masked_logits(features, layer, ranks >= ratio) for ratio in self.ratios]
        passes = [("magnitude", 0, smallest)]
        for draw in range(self.draws):
            passes.append(("random", draw, self._random(features, layer, draw)))
        rows = []
        for mode, draw, by_ratio in passes:
            for ratio, logits in zip(self.ratios, by_ratio, strict=True):
                output = from_logits(logits.cpu().numpy())
                predictions = check_probabilities(output, subject.labels)
                row = {"mode": mode, "ratio": float(ratio), "draw": np.int32(draw)}
                row["confidence"] = float(predictions.confidence.mean())
                for name in SCORES:
                    row[name] = METRICS[name].function(predictions, subject.labels, self.bins)
                rows.append(row)
        return pd.DataFrame(rows)

    def _random(self, features: Tensor, layer: Layer, draw: int) -> list[Tensor]:
        """Logits (N, K) for each ratio, under a new mask for each batch."""
        parts: list[list[Tensor]] = [[] for _ in self.ratios]
        for number, images in enumerate(features.split(self.batch)):
            # on the CPU, so that a GPU draws the same masks
            rng = generator("cpu", self.seed, "probe", "masking", draw, number)
            uniform = torch.rand(layer.weight.shape, generator=rng).to(layer.weight.device)
            for part, ratio in zip(parts, self.ratios, strict=True):
                part.append(masked_logits(images, layer, uniform >= ratio))
        return [torch.cat(part) for part in parts]


def magnitude_ranks(weight: Tensor) -> Tensor:
    """Fraction of weights (K, d) that are smaller in magnitude than each; of equal ones the first
    is smaller.
    """
    order = weight.abs().flatten().cpu().argsort(stable=True)
    ranks = torch.empty(len(order), dtype=torch.float64)
    ranks[order] = torch.arange(len(order), dtype=torch.float64) / len(order)
    return ranks.view(weight.shape).to(weight.device)


def masked_logits(features: Tensor, layer: Layer, keep: Tensor) -> Tensor:
    """Logits (N, K) of features (N, d) with only the weights at ``keep`` (K, d)."""
    return F.linear(features, layer.weight * keep, layer.bias)
