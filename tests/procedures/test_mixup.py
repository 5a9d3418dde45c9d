"""Mixup: the mixture, its loss and its accuracy by hand, and the draw of the weight."""

import pytest
import torch
from scipy import stats
from tests.procedures.cases import images_batch
from tests.training.test_trainer import assert_same_result, run
from torch.nn import functional as F

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
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


def test_loss_is_cross_entropy_against_the_mixed_label(model, batch):
    weight, partners = drawn(0.5, batch)
    procedure = build_procedure("mixup", alpha=0.5)
    logits, total = procedure.forward_loss(model, build_loss("ce", 4), procedure.draw(batch))
    torch.manual_seed(0)
    expected = build_backbone("resnet8", 4).train()(
        weight * batch.images + (1 - weight) * batch.images[partners]
    )
    labels = F.one_hot(batch.labels, 4)
    target = weight * labels + (1 - weight) * labels[partners]
    assert torch.allclose(logits, expected)
    assert total.item() == pytest.approx(
        -(target * expected.log_softmax(1)).sum(1).mean().item(), rel=1e-5
    )


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


def test_accuracy_is_weighted_by_the_labels_that_are_met(model, batch):
    procedure = build_procedure("mixup", alpha=0.5)
    weight, partners = drawn(0.5, batch)
    mixed = procedure.draw(batch)
    labels, others = batch.labels, batch.labels[partners]
    correct = procedure.correct(F.one_hot(labels, 4).float(), mixed)
    assert torch.allclose(correct, torch.where(labels == others, 1.0, weight))
    neither = [
        next(c for c in range(4) if c not in pair) for pair in zip(labels, others, strict=True)
    ]
    assert procedure.correct(F.one_hot(torch.tensor(neither), 4).float(), mixed).sum() == 0


@pytest.mark.parametrize("loss", ["ce", "ls", "cals_alm"])
def test_alpha_zero_is_plain_training_bit_for_bit(loss, make_spec, prepared, tmp_path):
    plain = run(make_spec(loss), prepared, tmp_path / "plain")
    mixed = run(
        make_spec(loss, "mixup", procedure_options={"alpha": 0.0}), prepared, tmp_path / "mixed"
    )
    assert_same_result(*plain, *mixed)


def test_alpha_zero_draws_nothing(model, batch):
    state = torch.get_rng_state()
    build_procedure("mixup", alpha=0.0).draw(batch)
    assert torch.equal(torch.get_rng_state(), state)


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


def test_partners_are_a_permutation(batch):
    torch.manual_seed(0)
    assert draw_partners(batch).sort().values.tolist() == list(range(12))
