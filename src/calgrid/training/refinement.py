"""Refinement and calibration parts of the negative log-likelihood and of the Brier score."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

#: bounds of the inverse temperature, those of the calibrator ``ts``
BETA_BOUNDS = (1e-2, 20.0)
#: of the bisection: beta is then exact to eight digits
STEPS = 30


def loss_parts(logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return mean NLL, in nats, and Brier score of logits, with their parts: columns of a history.

    ``val_refinement`` is the lowest mean NLL of ``softmax(beta z)`` over beta in [0.01, 20], and
    ``val_brier_refinement`` the Brier score at this beta; the rest of each is its calibration part,
    as far as one temperature removes it (Berta et al., arXiv 2501.19195, section 4). The
    calibration part of the Brier score may be negative. As in the authors' code, beta is found by
    bisection of the derivative over ln(beta), on the scored rows. The calibrator is not imported:
    its edits would retrain all networks.

    Parameters
    ----------
    logits : ``(N, K)``, finite. labels : ``(N,)``, on the same device.
    """
    z = logits.double()
    true = z.gather(1, labels.unsqueeze(1)).squeeze(1)
    low, high = map(math.log, BETA_BOUNDS)
    for _ in range(STEPS):
        middle = (low + high) / 2
        expected = ((z * math.exp(middle)).softmax(1) * z).sum(1)
        rises = bool((expected - true).mean() > 0)
        low, high = (low, middle) if rises else (middle, high)
    losses = [*_losses(z, labels), *_losses(z * math.exp(low), labels)]
    # one transfer from a GPU
    nll, brier, refinement, brier_refinement = torch.stack(losses).cpu().tolist()
    return {
        "val_nll": nll,
        "val_refinement": refinement,
        "val_calibration": nll - refinement,
        "val_brier": brier,
        "val_brier_refinement": brier_refinement,
        "val_brier_calibration": brier - brier_refinement,
    }


def _losses(z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Mean NLL, and mean Brier score, the sum of squares over classes, of logits (N, K)."""
    probs = z.softmax(1)
    of_label = probs.gather(1, labels.unsqueeze(1)).squeeze(1)
    brier = probs.square().sum(1) - 2 * of_label + 1
    return F.cross_entropy(z, labels), brier.mean()
