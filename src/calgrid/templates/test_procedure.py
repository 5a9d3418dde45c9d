"""my_component: without noise it is plain training, with noise it is not."""

from pathlib import Path

import torch
from torch import Tensor

from calgrid.backbones import build_backbone
from calgrid.components import plugins
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.training.data import Batch

plugins.use([Path(__file__).parents[1]])

HINT = "replace this assertion: it is that of the template"


def logits_and_loss(scale: float) -> tuple[Tensor, Tensor]:
    torch.manual_seed(1)
    network = build_backbone("resnet8", 3)
    batch = Batch(torch.randn(4, 3, 8, 8), torch.arange(4) % 3, torch.arange(4))
    procedure = build_procedure("my_component", scale=scale)
    return procedure.forward_loss(network, build_loss("ce", 3), procedure.draw(batch))


def test_noise_changes_the_step_and_its_absence_does_not() -> None:
    torch.manual_seed(1)
    network, images = build_backbone("resnet8", 3), torch.randn(4, 3, 8, 8)
    logits, loss = logits_and_loss(scale=0.0)
    plain = torch.nn.functional.cross_entropy(logits, torch.arange(4) % 3)
    assert torch.allclose(logits, network(images)), HINT
    assert torch.allclose(loss, plain), HINT
    assert not torch.allclose(logits, logits_and_loss(scale=1.0)[0]), HINT
