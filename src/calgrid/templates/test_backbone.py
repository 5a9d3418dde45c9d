"""my_component: its size, counted by hand, and what it gives."""

from pathlib import Path

import torch

from calgrid.backbones import build_backbone
from calgrid.components import plugins

plugins.use([Path(__file__).parents[1]])

HINT = "replace this number: it is that of the template"


def test_size_and_shapes() -> None:
    network = build_backbone("my_component", num_classes=10)
    convolutions, head = (3 * 9 * 16 + 16) + (16 * 8 + 8), 8 * 10 + 10
    assert sum(weights.numel() for weights in network.parameters()) == convolutions + head, HINT
    images = torch.randn(2, 3, 32, 32)
    assert network.features(images).shape == (2, 8), HINT
    assert torch.equal(network(images), network.head(network.features(images)))
