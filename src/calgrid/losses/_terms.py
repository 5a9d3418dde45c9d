"""Terms shared by several losses."""

import torch
from torch import Tensor

#: keeps the gradient of ``x ** gamma`` finite at x = 0 for gamma < 1 (0 * inf would be NaN); far
#: below 1 - p in float32
FLOOR = 1e-20
#: width of the Laplacian kernel of MMCE in units of confidence, as in all official code
KERNEL_WIDTH = 0.4


def cross_entropy(log_probs: Tensor, labels: Tensor) -> Tensor:
    """Negative log-likelihood ``-log p_y``: (N, C), (N,) -> (N,)."""
    return -log_probs.gather(1, labels.unsqueeze(1)).squeeze(1)


def uniform_cross_entropy(log_probs: Tensor) -> Tensor:
    """Cross-entropy against the uniform distribution, ``-(1/C) sum_c log p_c``: (N, C) -> (N,)."""
    return -log_probs.mean(dim=1)


def entropy(log_probs: Tensor) -> Tensor:
    """Shannon entropy ``-sum_c p_c log p_c`` in nats: (N, C) -> (N,)."""
    return -(log_probs.exp() * log_probs).sum(dim=1)


def margin_excess(logits: Tensor, margin: float) -> Tensor:
    """Mean excess of the logit distances over a margin, ``mean_c relu(max_l s_l - s_c - m)``: (N,
    C) -> (N,).

    The gradient also flows through the largest logit. The papers of MbLS and FeDLaS (Eq. 6) have a
    sum over classes; the official code of MbLS, ACLS and FeDLaS averages, and the published weights
    are for the average.
    """
    largest = logits.max(dim=1, keepdim=True).values
    return (largest - logits - margin).relu().mean(dim=1)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Indicator ``1[c = y]`` in float32: (N,) -> (N, C)."""
    zeros = torch.zeros(len(labels), num_classes, device=labels.device)
    return zeros.scatter_(1, labels.unsqueeze(1), 1.0)


def complement(log_p: Tensor) -> Tensor:
    """``1 - p`` from ``log p`` (N,), also exact if p rounds to 1."""
    return -log_p.expm1()


def modulation(base: Tensor, gamma: float | Tensor) -> Tensor:
    """``base ** gamma`` for base (N,) in [0, inf), with finite gradients everywhere."""
    return base.clamp_min(FLOOR).pow(gamma)


def frequency_gap(probs: Tensor, labels: Tensor) -> Tensor:
    """``(1/C) sum_c |mean_i p_ic - mean_i 1[y_i = c]|``, scalar, of probabilities (N, C) and labels
    (N,).

    The factor 1/C makes the term small for many classes; for N < C the frequencies in a batch are
    mostly noise.
    """
    return (probs.mean(dim=0) - one_hot(labels, probs.shape[1]).mean(dim=0)).abs().mean()


def top_confidence(log_probs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """Return confidence ``max_c p_c`` (N,) and correctness (N,), 0.0 or 1.0, without gradient."""
    largest, predicted = log_probs.max(dim=1)
    return largest.exp(), (predicted == labels).float()


def kernel_form(gap: Tensor, pairs: Tensor) -> Tensor:
    """``sum_ij g_i g_j k_ij``, scalar, of gaps g (N,) and a kernel (N, N).

    Sums instead of a matrix product, which a GPU may compute in TF32.
    """
    return (gap * (pairs * gap).sum(dim=1)).sum()


def kernel(confidence: Tensor) -> Tensor:
    """Laplacian kernel ``exp(-|k_i - k_j| / 0.4)`` (N, N) of confidences (N,); the gradient flows
    through it.
    """
    return ((confidence.unsqueeze(0) - confidence.unsqueeze(1)).abs() / -KERNEL_WIDTH).exp()
