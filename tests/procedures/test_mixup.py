"""Mixup, RegMixup and CutMix: mixture, loss and accuracy by hand, and the draw of the weight."""

import pytest
import torch
from scipy import stats
from tests.procedures.cases import images_batch
from tests.training.test_trainer import assert_same_result, run
from torch.nn import functional as F

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure, cutmix
from calgrid.procedures._mixing import draw_beta, draw_partners


@pytest.fixture
def model():
    torch.manual_seed(0)
    return build_backbone("resnet8", 4).train()


@pytest.fixture
def batch():
    return images_batch(12, 4)


def drawn(alpha, batch, seed=7):
    """What a procedure draws after this seed."""
    torch.manual_seed(seed)
    weight = float(draw_beta(alpha, 1))
    partners = draw_partners(batch)
    torch.manual_seed(seed)
    return weight, partners


@pytest.mark.parametrize(
    ("id", "options"), [("mixup", {"alpha": 0.5}), ("cutmix", {"probability": 1.0})]
)
def test_loss_and_accuracy_are_those_against_the_mixed_label(id, options, model, batch):
    procedure = build_procedure(id, **options)
    torch.manual_seed(7)
    mixed = procedure.draw(batch)
    logits, total = procedure.forward_loss(model, build_loss("ce", 4), mixed)
    torch.manual_seed(7)
    images, weight, partners = procedure.mixture(batch)
    labels, others = batch.labels, batch.labels[partners]
    assert 0 < weight < 1
    torch.testing.assert_close(logits, model(images))
    target = weight * F.one_hot(labels, 4) + (1 - weight) * F.one_hot(others, 4)
    expected = -(target * logits.log_softmax(1)).sum(1).mean()
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    correct = procedure.correct(F.one_hot(labels, 4).float(), mixed)
    assert torch.allclose(correct, torch.where(labels == others, 1.0, weight))
    pairs = zip(labels, others, strict=True)
    neither = [next(c for c in range(4) if c not in pair) for pair in pairs]
    assert procedure.correct(F.one_hot(torch.tensor(neither), 4).float(), mixed).sum() == 0


def test_terms_of_the_loss_in_the_history_are_weighted_too(model, batch):
    weight, partners = drawn(0.5, batch)
    loss = build_loss("ls", 4)
    procedure = build_procedure("mixup", alpha=0.5)
    logits, _ = procedure.forward_loss(model, loss, procedure.draw(batch))
    recorded = dict(loss.last_terms)
    ce = [
        F.cross_entropy(logits, labels).item() for labels in (batch.labels, batch.labels[partners])
    ]
    assert recorded["ce"].item() == pytest.approx(weight * ce[0] + (1 - weight) * ce[1], rel=1e-5)
    assert recorded.keys() == {"ce", "uniform"}


def test_without_mixtures_it_is_plain_training(make_spec, prepared, tmp_path):
    plain = run(make_spec("cals_alm", epochs=1), prepared, tmp_path / "plain")
    for id, options in (("mixup", {"alpha": 0.0}), ("cutmix", {"probability": 0.0})):
        spec = make_spec("cals_alm", id, epochs=1, procedure_options=options)
        assert_same_result(*plain, *run(spec, prepared, tmp_path / id))


@pytest.mark.parametrize("alpha", [0.1, 0.2, 1.0, 5.0])
def test_weights_are_beta_distributed(alpha):
    torch.manual_seed(3)
    draws = draw_beta(alpha, 20_000)
    assert stats.kstest(draws.numpy(), stats.beta(alpha, alpha).cdf).pvalue > 0.001


def test_a_tiny_alpha_gives_weights_of_zero_or_one():
    """The quotient of two Gamma variables would be 0 / 0 here."""
    torch.manual_seed(3)
    draws = draw_beta(1e-4, 4000)
    assert ((draws < 1e-6) | (draws > 1 - 1e-6)).double().mean() > 0.99
    assert draws.mean().item() == pytest.approx(0.5, abs=0.03)


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


def test_a_rectangle_of_the_partner_is_pasted_and_the_weight_is_the_rest(batch):
    procedure = build_procedure("cutmix", probability=1.0)
    before = batch.images.clone()
    weights = set()
    for seed in range(30):
        torch.manual_seed(seed)
        images, weight, partners = procedure.mixture(batch)
        pasted = (images == before[partners]).all(1)
        kept = (images == before).all(1)
        assert (pasted | kept).all()
        others = partners != torch.arange(12)
        for each in pasted[others]:
            rows, columns = each.any(1).sum(), each.any(0).sum()
            assert each.sum() == rows * columns  # a rectangle
            assert 1 - int(each.sum()) / 64 == weight
        weights.add(weight)
    assert len(weights) > 10
    assert torch.equal(batch.images, before)


def test_a_rectangle_ends_at_the_border(monkeypatch):
    places = iter([0, 7, 4])
    monkeypatch.setattr(cutmix.torch, "randint", lambda *_: torch.tensor(next(places)))
    # int(0.65 * 8) // 2 = 2 pixels on each side
    sections = [cutmix._section(8, 0.65) for _ in range(3)]
    assert sections == [slice(0, 2), slice(5, 8), slice(2, 6)]


def test_a_share_of_the_batches_is_mixed(batch):
    procedure = build_procedure("cutmix", probability=0.3)
    torch.manual_seed(0)
    mixed = [procedure.mixture(batch) is not None for _ in range(400)]
    assert sum(mixed) == pytest.approx(120, abs=35)
