"""A fixed simplex classifier beside a learnable one: its geometry, and the weight that balances the two."""

import math

import torch
from torch import Tensor

#: rows whose softmax is computed at once
CHUNK = 65536


def simplex_frame(num_features: int, num_classes: int, scale: float) -> Tensor:
    """Draw a simplex equiangular tight frame (d, K), with the global generator.

    ``scale sqrt(K / (K - 1)) U (I - 1 1^T / K)``, U (d, K) with orthonormal columns: all columns have length
    ``scale``, and any two of them the cosine ``-1 / (K - 1)``. Needs d >= K.
    """
    orthonormal, _ = torch.linalg.qr(torch.rand(num_features, num_classes, dtype=torch.float64))
    centred = orthonormal - orthonormal.mean(dim=1, keepdim=True)
    return (scale * math.sqrt(num_classes / (num_classes - 1)) * centred).float()


def class_scaling(labels: Tensor, num_classes: int) -> Tensor:
    """Factor (K,) of each class in a batch: ``sqrt((B / present classes) / n_c)``, and 1 for absent classes."""
    classes = torch.arange(num_classes, device=labels.device)
    counts = (labels.unsqueeze(1) == classes).sum(dim=0)
    present = counts > 0
    return torch.where(present, (len(labels) / present.sum() / counts.clamp_min(1)).sqrt(), 1.0)


def accuracy_and_confidence(first: Tensor, second: Tensor, labels: Tensor, weight: float) -> tuple[float, float]:
    """Accuracy and mean largest probability of ``weight first + (1 - weight) second``, both (N, K)."""
    correct, confidence = torch.zeros((), dtype=torch.int64), torch.zeros((), dtype=torch.float64)
    for a, b, y in zip(first.split(CHUNK), second.split(CHUNK), labels.split(CHUNK), strict=True):
        top = (weight * a + (1.0 - weight) * b).softmax(dim=1).max(dim=1)
        correct = correct + (top.indices == y).sum()
        confidence = confidence + top.values.double().sum()
    return float(correct) / len(labels), float(confidence) / len(labels)


def balancing_weight(first: Tensor, second: Tensor, labels: Tensor, ratio: float, tolerance: float = 1e-4) -> float:
    """Weight at which the mean confidence of the mixed logits (N, K) is ``ratio`` times their accuracy.

    1 where the first logits alone are less confident than that already; else by bisection of [0, 1], the last
    midpoint.
    """
    accuracy, confidence = accuracy_and_confidence(first, second, labels, 1.0)
    if ratio * accuracy > confidence:
        return 1.0
    low, high = 0.0, 1.0
    while high - low > tolerance:
        middle = (low + high) / 2
        accuracy, confidence = accuracy_and_confidence(first, second, labels, middle)
        low, high = (middle, high) if ratio * accuracy > confidence else (low, middle)
    return middle
