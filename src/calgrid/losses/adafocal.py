"""AdaFocal (Ghosh et al., NeurIPS 2022, arXiv 2211.11838)."""

import torch
from torch import Tensor

from calgrid.components.registry import register
from calgrid.losses.base import Loss, LossTerms, complement, cross_entropy, modulation


@register(
    source="Ghosh et al., NeurIPS 2022, arXiv 2211.11838; 3mcloud/adafocal losses/adafocal.py, "
    "utils/metrics.py",
    sees_validation=True,
    hard_labels=True,
    state="epoch",
    limits={
        "lambda_": "[0, inf)",
        "gamma_init": "[0, gamma_max]",
        "num_bins": "[1, 1000000]",
        "switch": "[0, inf)",
        "gamma_max": "[0, inf)",
        "inverse_max": "[0, inf)",
    },
)
class AdaFocal(Loss):
    """Focal loss whose exponent follows the miscalibration of the validation split, bin by bin.

    With the signed exponent g of the bin of p_y: ``mean((1 - p_y)^g CE)`` for g > 0, and inverse
    focal loss ``mean((1 + p_y)^|g| CE)`` for g < 0. After each epoch the bins are set to equal mass
    of the validation confidences, and each exponent to ``g exp(+-lambda gap)``, + for g > 0, gap
    the mean confidence of the bin minus its accuracy; below ``switch`` it changes sign. The
    official trainer sums over the batch (``reduction="sum"``).

    Exponents belong to the index of a bin, whose edges change. If confidences tie at 1, upper bins
    are empty and their exponents do not change. Defaults are those of the official run of ResNet-50
    on CIFAR-10.

    Parameters
    ----------
    lambda_ : rate of the update, at least 0.
    gamma_init : exponent of all bins before the first update, in [0, gamma_max].
    num_bins : bins B, at least 1.
    switch : magnitude below which an exponent changes sign, at least 0.
    gamma_max, inverse_max : the exponents stay in [-inverse_max, gamma_max], both at least 0.

    Attributes
    ----------
    gammas : (B,) float64, signed exponents. edges : (B + 1,) float64, of the bins.
    """

    gammas: Tensor
    edges: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        lambda_: float = 1.0,
        gamma_init: float = 1.0,
        num_bins: int = 15,
        switch: float = 0.2,
        gamma_max: float = 20.0,
        inverse_max: float = 2.0,
    ) -> None:
        super().__init__(num_classes)
        self.lambda_ = lambda_
        self.switch = switch
        self.gamma_max = gamma_max
        self.inverse_max = inverse_max
        self.register_buffer("gammas", torch.full((num_bins,), gamma_init, dtype=torch.float64))
        self.register_buffer("edges", torch.linspace(0, 1, num_bins + 1, dtype=torch.float64))

    def compute(
        self, logits: Tensor, labels: Tensor, features: Tensor | None, index: Tensor | None
    ) -> LossTerms:
        """Return the loss of logits (N, C) and labels (N,); parts ``focal``, the plain ``ce`` and
        mean ``gamma``.
        """
        ce = cross_entropy(logits.log_softmax(dim=1), labels)
        gamma = self.exponents((-ce).exp().detach())
        base = torch.where(gamma > 0, complement(-ce), 1 + (-ce).exp())
        total = (modulation(base, gamma.abs()) * ce).mean()
        return total, {"focal": total, "ce": ce.mean(), "gamma": gamma.mean()}

    def exponents(self, p: Tensor) -> Tensor:
        """Return the signed exponent (N,) of probabilities (N,): bins ``lower <= p < upper``, open
        at both ends.
        """
        bins = torch.bucketize(p.double(), self.edges[1:-1].contiguous(), right=True)
        return self.gammas[bins].to(p.dtype)

    @torch.no_grad()
    def end_epoch(self, epoch: int, val_logits: Tensor | None, val_labels: Tensor | None) -> None:
        """Update bins and exponents with the validation logits (M, C) and labels (M,)."""
        logits, labels = self.validation(val_logits, val_labels)
        confidence, predicted = logits.softmax(dim=1).double().max(dim=1)
        edges = equal_mass_edges(confidence, len(self.gammas))
        gaps = calibration_gaps(confidence, predicted == labels, edges)
        gammas = moved(self.gammas, gaps, self.lambda_, self.switch)
        self.gammas.copy_(gammas.clamp(-self.inverse_max, self.gamma_max))
        self.edges.copy_(edges)


def equal_mass_edges(values: Tensor, num_bins: int) -> Tensor:
    """Edges (B + 1,) of bins of equal mass of values (M,): the sorted values at 0, M/B, 2M/B, ...,
    M - 1.

    Interpolated linearly between neighbours, term by term as ``numpy.interp`` in the official code.
    """
    ordered, last = values.sort().values, len(values) - 1
    steps = torch.arange(num_bins + 1, dtype=values.dtype, device=values.device)
    position = (steps * (len(values) / num_bins)).clamp_max(last)
    low = position.long()
    start = ordered[low]
    return start + (position - low) * (ordered[(low + 1).clamp_max(last)] - start)


def calibration_gaps(confidence: Tensor, correct: Tensor, edges: Tensor) -> Tensor:
    """Mean confidence minus accuracy (B,) in the bins ``lower < confidence <= upper``; 0 for an
    empty bin.
    """
    # (M, B) instead of a scatter, whose order of summation is not deterministic on a GPU
    inside = (confidence.unsqueeze(1) > edges[:-1]) & (confidence.unsqueeze(1) <= edges[1:])
    excess = ((confidence - correct.to(confidence)).unsqueeze(1) * inside).sum(dim=0)
    return excess / inside.sum(dim=0).clamp_min(1)


def moved(gammas: Tensor, gaps: Tensor, rate: float, switch: float) -> Tensor:
    """Exponents (B,) after ``g exp(+-rate gap)``; one of magnitude below ``switch`` becomes
    -+switch.
    """
    focal = gammas > 0
    following = gammas * (rate * torch.where(focal, gaps, -gaps)).exp()
    turned = torch.where(focal, -switch, switch).to(gammas)
    return torch.where(following.abs() < switch, turned, following)
