"""V-TST: the Gaussian, its divergence from the prior, predictions as means of fixed samples."""

import pytest
import torch
from tests.procedures.cases import begin, images_batch
from torch import nn
from torch.distributions import Independent, Normal, kl_divergence

from calgrid.backbones import build_backbone
from calgrid.losses import build_loss
from calgrid.procedures import build_procedure
from calgrid.procedures.vtst import NOISE_ROWS, kl_to_standard_normal
from calgrid.training.data import Batch
from calgrid.training.seeds import generator


def second_stage(seed=3, **options):
    torch.manual_seed(2)
    procedure = build_procedure("vtst", **{"hidden": 16, **options})
    model = procedure.build_model(build_backbone("resnet8", 10), 10)
    begin(procedure, model, seed=seed, augmented=True)
    return procedure, model


@pytest.fixture
def batch():
    return images_batch(16, 10)


def test_divergence_is_that_of_the_closed_form_over_the_latents():
    torch.manual_seed(0)
    mean, log_variance = torch.randn(7, 5), -torch.rand(7, 5) * 3
    gaussian = Independent(Normal(mean, (0.5 * log_variance).exp()), 1)
    prior = Independent(Normal(torch.zeros(7, 5), torch.ones(7, 5)), 1)
    expected = kl_divergence(gaussian, prior).mean() / 5
    assert kl_to_standard_normal(mean, log_variance).item() == pytest.approx(
        expected.item(), rel=1e-5
    )


def test_head_is_two_networks_and_a_classifier_and_its_log_variance_a_log_sigmoid():
    _, model = second_stage()
    for network in (model.head.mean, model.head.spread):
        assert [tuple(network[place].weight.shape) for place in (0, 2)] == [(48, 64), (16, 48)]
    assert model.head.classifier.weight.shape == (10, 16)
    features = 100 * torch.randn(50, 64)
    _, log_variance = model.head(features)
    torch.testing.assert_close(log_variance.exp(), model.head.spread(features).sigmoid())
    assert (log_variance <= 0).all()


@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("weight", [0.0, 1.0, 0.3])
def test_loss_is_cross_entropy_of_one_latent_and_the_weighted_divergence(weight, reduction, batch):
    procedure, model = second_stage(kl_weight=weight)
    mean, log_variance = model.head(model.features(batch.images))
    torch.manual_seed(8)
    logits = model.head.classifier(mean + (log_variance / 2).exp() * torch.randn(16, 16))
    torch.manual_seed(8)
    found, total = procedure.forward_loss(model, build_loss("ce", 10, reduction=reduction), batch)
    kl = kl_to_standard_normal(mean, log_variance)
    expected = nn.functional.cross_entropy(logits, batch.labels) + weight * kl
    torch.testing.assert_close(found, logits)
    assert total.item() == pytest.approx(
        expected.item() * (16 if reduction == "sum" else 1), rel=1e-5
    )
    assert procedure.last_terms["kl"].item() == pytest.approx(kl.item())
    assert not procedure.last_terms["kl"].requires_grad


def test_prediction_is_the_mean_probability_of_the_samples(batch):
    procedure, model = second_stage(seed=5, samples=4)
    batch = Batch(batch.images, batch.labels, batch.index + 1024)
    logits, features = procedure.predict(model, batch)
    mean, log_variance = model.head(features)
    noise = torch.randn(
        NOISE_ROWS, 4, 16, generator=generator("cpu", 5, "vtst", 1024 // NOISE_ROWS)
    )[:16]
    latents = [mean + (log_variance / 2).exp() * noise[:, sample] for sample in range(4)]
    expected = sum(model.head.classifier(latent).softmax(dim=1) for latent in latents) / 4
    torch.testing.assert_close(logits.exp(), expected)
    torch.testing.assert_close(logits.exp().sum(dim=1), torch.ones(16))


def test_prediction_repeats_and_depends_on_seed_and_place(batch):
    procedure, model = second_stage(seed=5)
    model.eval()
    logits, _ = procedure.predict(model, batch)
    torch.rand(3)
    assert torch.equal(procedure.predict(model, batch)[0], logits)
    pieces = [
        Batch(batch.images[rows], batch.labels[rows], batch.index[rows])
        for rows in (slice(5), slice(5, None))
    ]
    torch.testing.assert_close(
        torch.cat([procedure.predict(model, piece)[0] for piece in pieces]), logits
    )
    moved = Batch(batch.images, batch.labels, batch.index + 16)
    assert not torch.equal(procedure.predict(model, moved)[0], logits)
    other, _ = second_stage(seed=6)
    assert not torch.equal(other.predict(model, batch)[0], logits)
