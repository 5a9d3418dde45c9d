"""Masked inference: accuracy and confidence when part of the last layer's weights is set to zero (MaC-Cal, Fig. 1)."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch
from torch import Tensor
from torch.nn import functional as F

from calgrid.metrics import METRICS, check_probabilities
from calgrid.probes._base import Layer, Probe, Subject, log_softmax
from calgrid.registry import register
from calgrid.training.seeds import generator

#: what is scored beside the mean confidence: no ECE without its company
SCORES = ("accuracy", "nll", "brier", "ece", "ece_debiased", "ece_null")


@register(
    source="MaC-Cal (arXiv 2508.09116), Sec. 1 and Fig. 1b, c",
    needs_linear_head=True,
    limits={"ratios": (0, 1), "draws": (1, 1000), "bins": (2, 1000), "seed": (0, None)},
)
class MaskedInference(Probe):
    """Scores of a trained network under masks on the weights of its linear head, without retraining.

    ``z = (M * W) h + b``: a share r of the weights W (K, d) is set to zero, nothing is rescaled and the bias stays.
    ``random`` masks each weight with probability r; the masks of one draw are nested, a weight that a small ratio
    masks is masked by all larger ones. ``magnitude`` masks the r K d weights of smallest magnitude. A random mask
    serves all test images (the paper draws "random masks" at inference and does not say how often). Masking while
    the head is retrained is a method: ``maccal`` with ``head: linear, sparsity: fixed, p0: 1 - r``.

    Columns: ``mode``, ``ratio``, ``draw`` (0 for ``magnitude``), ``confidence`` (mean largest probability),
    ``accuracy``, ``nll``, ``brier``, ``ece``, ``ece_debiased``, ``ece_null``: of the test split, fractions but for nll
    (nats) and brier (sum over classes).

    Parameters
    ----------
    ratios : shares of weights that are masked. draws : random masks of each ratio.
    bins : equal-width bins of the calibration errors. seed : of the random masks.
    """

    def __init__(
        self,
        *,
        ratios: tuple[float, ...] = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
        draws: int = 5,
        bins: int = 15,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.ratios, self.draws, self.bins, self.seed = ratios, draws, bins, seed

    def measure(self, subject: Subject) -> pd.DataFrame:
        """One row a mode, ratio and draw."""
        layer = subject.last_layer()
        features = torch.from_numpy(subject.outputs.features).to(subject.device)
        rows = []
        for mode, draw, keep in self._masks(layer.weight):
            for ratio in self.ratios:
                logits = masked_logits(features, layer, keep >= ratio)
                scores = self._score(logits.cpu().numpy(), subject.labels)
                rows.append({"mode": mode, "ratio": float(ratio), "draw": np.int32(draw), **scores})
        return pd.DataFrame(rows)

    def _masks(self, weight: Tensor) -> Iterator[tuple[str, int, Tensor]]:
        """Mode, number, and for each weight the largest ratio at which it is kept, (K, d)."""
        yield "magnitude", 0, magnitude_ranks(weight)
        for draw in range(self.draws):
            # on the CPU, so that a GPU draws the same masks
            uniform = torch.rand(weight.shape, generator=generator("cpu", self.seed, "probe", "masking", draw))
            yield "random", draw, uniform.to(weight.device)

    def _score(self, logits: np.ndarray, labels: np.ndarray) -> dict[str, float]:
        predictions = check_probabilities(np.exp(log_softmax(logits)), labels)
        scores = {name: METRICS[name].function(predictions, labels, self.bins) for name in SCORES}
        return {"confidence": float(predictions.confidence.mean()), **scores}


def magnitude_ranks(weight: Tensor) -> Tensor:
    """Share of weights (K, d) that are smaller in magnitude than each; of equal ones the first counts as smaller."""
    order = weight.abs().flatten().cpu().argsort(stable=True)
    ranks = torch.empty(len(order), dtype=torch.float64)
    ranks[order] = torch.arange(len(order), dtype=torch.float64) / len(order)
    return ranks.view(weight.shape).to(weight.device)


def masked_logits(features: Tensor, layer: Layer, keep: Tensor) -> Tensor:
    """Logits (N, K) of features (N, d) when only the weights at ``keep`` (K, d) take part."""
    return F.linear(features, layer.weight * keep, layer.bias)
