"""The batch of the reference vectors."""

import pytest
import torch

torch.set_num_threads(1)

LOGITS = ((9.0, 1.0, 0.0, -2.0), (2.0, 1.5, 0.5, 0.0), (0.2, 0.1, 0.0, -0.1), (-1.0, 4.0, 3.0, -8.0))
LABELS = (0, 1, 0, 0)
NORMS = (30.0, 10.0, 18.0, 22.0)


@pytest.fixture
def logits():
    return torch.tensor(LOGITS, requires_grad=True)


@pytest.fixture
def labels():
    return torch.tensor(LABELS)


@pytest.fixture
def features():
    """Features (4, 2) whose L1 norms are 30, 10, 18, 22."""
    norms = torch.tensor(NORMS)
    return torch.stack([0.75 * norms, -0.25 * norms], dim=1)
