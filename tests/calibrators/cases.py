"""Inputs that several tests of calibrators share."""

import numpy as np
import torch

from calgrid.calibrators import logits_from_probabilities

#: worked example: ten confidences and whether the prediction was right
CONFIDENCE = np.array([0.38, 0.46, 0.53, 0.58, 0.65, 0.71, 0.77, 0.85, 0.92, 0.95])
CORRECT = np.array([0, 0, 1, 0, 1, 1, 0, 1, 1, 1], dtype=float)


def top_heavy(confidence, n_classes=4):
    """Logits whose softmax gives class 0 the confidence and shares the rest evenly."""
    rest = np.repeat((1.0 - confidence)[:, None] / (n_classes - 1), n_classes - 1, axis=1)
    return logits_from_probabilities(np.column_stack([confidence, rest]))


def shifted(problem):
    """Logits with row maximum 0."""
    return problem.logits - problem.logits.max(axis=1, keepdims=True)


def nll_of(scores, labels):
    """Mean NLL of the softmax of scores (N, K)."""
    return (np.logaddexp.reduce(scores, axis=1) - scores[np.arange(len(labels)), labels]).mean()


def torch_confidence_loss(name, confidence, correct, sigma=0.05, delta=1e-3, n_bins=15):
    """An objective of confidences (N,) as its formula is usually written."""
    centres = (torch.arange(n_bins, dtype=torch.float64) + 0.5) / n_bins
    weights = torch.exp(-((confidence[:, None] - centres) ** 2) / (2 * sigma**2))
    weights = weights / (weights.sum(dim=1, keepdim=True) + 1e-6)
    if name == "pointwise":
        return (
            (weights * torch.sqrt((correct[:, None] - centres) ** 2 + delta**2)).sum(dim=1).mean()
        )
    mass = weights.sum(dim=0)
    mean = (weights * (confidence - correct)[:, None]).sum(dim=0) / (mass + 1e-6)
    penalty = mean.abs() if name == "softece" else torch.sqrt(mean**2 + delta**2) - delta
    return (mass / len(confidence) * penalty).sum()


def top_versus_all(probabilities, labels):
    """Mean -ln p of the top class where it is right, else -ln(1 - p); certain rows are left out."""
    rows, top = np.arange(len(labels)), probabilities.argmax(axis=1)
    others = probabilities.copy()
    others[rows, top] = 0.0
    outcome = np.where(top == labels, probabilities[rows, top], others.sum(axis=1))
    varies = (probabilities > 0.0).sum(axis=1) > 1
    return -np.log(np.maximum(outcome[varies], 1e-300)).mean()
