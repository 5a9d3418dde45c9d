"""RegMixup: the loss by hand, from one forward pass of plain and mixed images."""

import pytest
import torch
from tests.procedures.cases import images_batch
from tests.procedures.test_mixup import drawn

from calgrid.backbones import build_backbone
from calgrid.components import registry
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure


@pytest.mark.parametrize("name", ["ce", "ls"])
def test_loss_is_half_the_sum_of_plain_loss_and_mixup(name):
    batch, loss = images_batch(12, 4), build_loss(name, 4)
    torch.manual_seed(0)
    model = build_backbone("resnet8", 4).train()
    weight, partners = drawn(20.0, batch)
    procedure = build_procedure("regmixup")
    logits, total = procedure.forward_loss(model, loss, procedure.draw(batch))
    mixed = weight * batch.images + (1 - weight) * batch.images[partners]
    both = model(torch.cat([batch.images, mixed]))
    torch.testing.assert_close(logits, both[:12])
    plain = loss(both[:12], batch.labels)
    own, others = loss(both[12:], batch.labels), loss(both[12:], batch.labels[partners])
    expected = 0.5 * (plain + weight * own + (1 - weight) * others)
    torch.testing.assert_close(total, expected)


def test_alpha_is_that_of_the_official_commands():
    description = registry.describe("procedure", "regmixup")
    alphas = [description.resolve(dataset=name)["alpha"] for name in ("cifar10", "cifar100")]
    assert alphas == [20.0, 10.0]
