"""Per-sample terms that several losses are made of."""

import torch
from torch import Tensor


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
    """Mean excess of the logit distances over a margin, ``mean_c relu(max_l s_l - s_c - m)``: (N, C) -> (N,).

    The gradient also flows through the largest logit and pulls it down. The papers of MbLS and FeDLaS (Eq. 6) print
    a sum over classes; the official code of MbLS, ACLS and FeDLaS averages, and the published weights belong to that.
    """
    largest = logits.max(dim=1, keepdim=True).values
    return (largest - logits - margin).relu().mean(dim=1)


def one_hot(labels: Tensor, num_classes: int) -> Tensor:
    """Indicator ``1[c = y]`` in float32: (N,) -> (N, C)."""
    zeros = torch.zeros(len(labels), num_classes, device=labels.device)
    return zeros.scatter_(1, labels.unsqueeze(1), 1.0)
