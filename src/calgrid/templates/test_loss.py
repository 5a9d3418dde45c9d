"""my_component: its value, worked out by hand."""

import math
from pathlib import Path

import pytest
import torch

from calgrid.components import plugins
from calgrid.losses import build_loss

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_value_of_two_samples() -> None:
    loss = build_loss("my_component", num_classes=2, weight=0.5)
    logits = torch.tensor([[0.0, 0.0], [0.0, 2.0]], requires_grad=True)
    total = loss(logits, torch.tensor([0, 1]))
    ce = (math.log(2) + math.log(1 + math.exp(-2))) / 2
    assert total.item() == pytest.approx(ce + 0.5 * 4 / 4), HINT
    total.backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()
