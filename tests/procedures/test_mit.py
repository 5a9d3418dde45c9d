"""MIT: the pair is recovered exactly where the network is affine, and mixed by its equations."""

import pytest
import torch
from scipy import stats
from tests.procedures.cases import images_batch
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.backbones.base import Backbone
from calgrid.errors import ConfigError
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure, mit_l
from calgrid.procedures._mixing import draw_partners

BOTH = ["mit_l", "mit_a"]


@pytest.fixture
def batch():
    return images_batch(12, 4)


def affine_backbone():
    """Three affine stages: every unit maps a mixture to the mixture of its outputs."""
    stages = [nn.Conv2d(3, 5, 3, padding=1), nn.Conv2d(5, 6, 1), nn.Conv2d(6, 7, 2, stride=2)]
    return Backbone(stages, nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()), 7, 4)


@pytest.mark.parametrize("procedure", BOTH)
def test_an_affine_network_gives_the_plain_logits_and_loss(procedure, batch):
    torch.manual_seed(2)
    model = affine_backbone()
    plain = model(batch.images)
    torch.manual_seed(5)
    partners = draw_partners(batch)
    torch.manual_seed(5)
    logits, total = build_procedure(procedure).forward_loss(model, build_loss("ce", 4), batch)
    torch.testing.assert_close(logits, plain, rtol=1e-4, atol=1e-5)
    ce = nn.functional.cross_entropy
    expected = 0.5 * ce(plain, batch.labels) + 0.5 * ce(plain[partners], batch.labels[partners])
    assert total.item() == pytest.approx(expected.item(), rel=1e-4)


def test_last_layer_by_hand(batch, monkeypatch):
    torch.manual_seed(0)
    model = build_backbone("resnet8", 4).eval()
    procedure = build_procedure("mit_l")
    monkeypatch.setattr(procedure, "draw_weights", lambda: (0.9, 0.2))
    pair = batch.images, batch.images.flip(0)
    own, other = procedure.decoupled_logits(model, pair)
    o1, o2 = model(0.9 * pair[0] + 0.1 * pair[1]), model(0.2 * pair[0] + 0.8 * pair[1])
    solved = torch.linalg.solve(
        torch.tensor([[0.9, 0.1], [0.2, 0.8]]), torch.stack([o1, o2]).flatten(1)
    )
    torch.testing.assert_close(torch.stack([own, other]).flatten(1), solved, rtol=1e-4, atol=1e-5)


def test_all_blocks_by_hand_with_fresh_weights_for_each_unit(batch, monkeypatch):
    torch.manual_seed(0)
    model = build_backbone("resnet8", 4).eval()
    procedure = build_procedure("mit_a")
    weights = [(0.9, 0.2), (0.8, 0.1), (1.0, 0.4), (0.7, 0.0), (0.6, 0.05)]
    left = list(weights)
    monkeypatch.setattr(procedure, "draw_weights", lambda: left.pop(0))
    a, b = batch.images, batch.images.flip(0)
    found = procedure.decoupled_logits(model, (a, b))
    units = [*model.stages, lambda maps: model.head(model.pool(maps))]
    assert len(units) == len(weights)
    for unit, (l1, l2) in zip(units, weights, strict=True):
        o1, o2 = unit(l1 * a + (1 - l1) * b), unit(l2 * a + (1 - l2) * b)
        a, b = ((1 - l2) * o1 - (1 - l1) * o2) / (l1 - l2), (l1 * o2 - l2 * o1) / (l1 - l2)
    assert not left
    torch.testing.assert_close(found, (a, b), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("procedure", BOTH)
def test_batch_normalisation_sees_the_two_mixtures_apart(procedure, batch):
    torch.manual_seed(0)
    model = build_backbone("resnet8", 4).train()
    build_procedure(procedure).forward_loss(model, build_loss("ce", 4), batch)
    counts = {
        int(value)
        for name, value in model.state_dict().items()
        if name.endswith("num_batches_tracked")
    }
    assert counts == {2}


@pytest.mark.parametrize(("alpha", "margin"), [(1.0, 0.5), (0.5, 0.5), (0.2, 0.0), (3.0, 0.3)])
def test_weights_lie_on_their_sides_and_keep_the_margin(alpha, margin):
    torch.manual_seed(0)
    procedure = build_procedure("mit_l", alpha=alpha, margin=margin)
    for l1, l2 in (procedure.draw_weights() for _ in range(50)):
        assert 0 <= l2 <= 0.5 <= l1 <= 1
        assert l1 - l2 >= margin


def test_without_a_margin_the_larger_weight_is_a_folded_beta():
    torch.manual_seed(0)
    procedure = build_procedure("mit_l", alpha=0.5, margin=0.0)
    draws = [procedure.draw_weights() for _ in range(500)]
    beta = stats.beta(0.5, 0.5).cdf
    assert stats.kstest([l1 for l1, _ in draws], lambda x: 2 * beta(x) - 1).pvalue > 0.001
    assert stats.kstest([l2 for _, l2 in draws], lambda x: 2 * beta(x)).pvalue > 0.001


def test_a_margin_out_of_reach_is_refused(refuses, monkeypatch):
    monkeypatch.setattr(mit_l, "ATTEMPTS", 20)
    procedure = build_procedure("mit_l", alpha=1e6, margin=0.9)
    with refuses(ConfigError, "hardly ever differ", "lower margin or alpha"):
        procedure.draw_weights()
