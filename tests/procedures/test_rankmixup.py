"""RankMixup: both rankings by hand and against the official code, and the mixtures of a step."""

import pytest
import torch
from tests.procedures.cases import images_batch

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.procedures._mixing import draw_beta, draw_partners

#: logits of images, of three mixtures, and the larger weights of their labels
LOGITS = torch.tensor(((9.0, 1.0, 0.0), (2.0, 1.5, 0.5), (0.2, 0.1, 0.0), (-1.0, 4.0, 3.0)))
MIXED = torch.stack([0.5 * LOGITS.roll(1, 0), 0.3 * LOGITS.flip(1), 0.8 * LOGITS + 0.1])
WEIGHTS = torch.tensor(((0.7, 0.7, 0.7, 1.0), (1.0, 0.6, 0.6, 1.0), (0.9, 0.9, 0.9, 0.9)))


def confident(*confidences):
    """Logits of two classes with these largest probabilities."""
    probs = torch.tensor(confidences)
    return torch.stack([probs, 1 - probs], dim=-1).log()


def test_margin_by_hand():
    procedure = build_procedure("rankmixup_mrl")
    logits, mixed = torch.tensor([[3.0, 0.0], [9.0, 0.0]]), torch.tensor([[[2.5, 0.0], [1.0, 0.0]]])
    found = procedure.ranking(logits, mixed, torch.tensor([[0.7, 0.6]]))
    assert found.item() == pytest.approx((1.5 + 0.0) / 2)
    assert procedure.ranking(logits, mixed, torch.ones(1, 2)).item() == 0


@pytest.mark.parametrize(("replay", "value"), [(True, 0.3075), (False, 0.615)])
def test_replay_has_the_value_of_the_official_code(replay, value):
    """Half of the pairs have different labels, and only they exceed the margin."""
    procedure = build_procedure("rankmixup_mrl", replay=replay)
    found = procedure.ranking(LOGITS, MIXED[1:2], WEIGHTS[1:2])
    assert found.item() == pytest.approx(value, abs=1e-6)


def test_gain_by_hand_and_of_the_official_code():
    mixed = confident(0.6, 0.8, 0.5).unsqueeze(1)
    weights = torch.tensor([[0.7], [0.6], [0.9]])
    found = build_procedure("rankmixup_mndcg").ranking(confident(0.9), mixed, weights)
    assert found.item() == pytest.approx(1 - 1.8600061 / 2.1762427, abs=1e-6)
    found = build_procedure("rankmixup_mndcg").ranking(LOGITS, MIXED, WEIGHTS)
    assert found.item() == pytest.approx(0.3243408, abs=1e-6)


def test_gain_is_inverted_above_the_ideal():
    mixed = confident(0.99, 0.99, 0.99).unsqueeze(1)
    weights = torch.full((3, 1), 0.5)
    found = build_procedure("rankmixup_mndcg").ranking(confident(0.99), mixed, weights)
    rest = sum(1 / torch.log2(torch.tensor(rank + 1.0)).item() for rank in (2, 3, 4))
    assert found.item() == pytest.approx(1 - (1 + 0.5 * rest) / (0.99 * (1 + rest)), abs=1e-6)


@pytest.mark.parametrize("form", ["rankmixup_mrl", "rankmixup_mndcg"])
def test_step_ranks_its_mixtures(form):
    batch, loss, procedure = images_batch(12, 4), build_loss("fl3", 4), build_procedure(form)
    torch.manual_seed(0)
    model = build_backbone("resnet8", 4).train()
    torch.manual_seed(7)
    images, weights = [], []
    for weight in draw_beta(2.0, procedure.mixtures).tolist():
        partners = draw_partners(batch)
        images.append(weight * batch.images + (1 - weight) * batch.images[partners])
        same = batch.labels == batch.labels[partners]
        weights.append(torch.where(same, 1.0, max(weight, 1 - weight)))
    torch.manual_seed(7)
    logits, total = procedure.forward_loss(model, loss, procedure.draw(batch))
    torch.testing.assert_close(logits, model(batch.images))
    mixed = model(torch.cat(images)).view(len(images), 12, 4)
    ranking = procedure.ranking(logits, mixed, torch.stack(weights))
    torch.testing.assert_close(procedure.last_terms["ranking"], ranking.detach())
    torch.testing.assert_close(total, loss(logits, batch.labels) + 0.1 * ranking)
