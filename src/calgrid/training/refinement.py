"""Refinement and calibration parts of the negative log-likelihood."""

import math

import torch
from torch.nn import functional as F

#: bounds of the inverse temperature, those of the calibrator ``ts``
BETA_BOUNDS = (1e-2, 20.0)
#: of the bisection: beta is then exact to eight digits
STEPS = 30


def refinement(logits: torch.Tensor, labels: torch.Tensor) -> float:
    """Return the lowest mean NLL, in nats, of ``softmax(beta z)`` over beta in [0.01, 20].

    The rest of the NLL is its calibration part, as far as one temperature removes it (Berta et al.,
    arXiv 2501.19195, section 4). As in their code, bisection of the derivative over ln(beta), on
    the rows that are then scored. It does not import the calibrator, an edit of which would train
    all networks again.

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
    return float(F.cross_entropy(z * math.exp(low), labels))
