"""BalCAL: the simplex, class scaling, both branches, and the weight that is solved each epoch."""

import math

import numpy as np
import pytest
import torch
from tests.procedures.cases import CPU
from tests.training.test_trainer import run
from torch import nn
from torch.nn import functional as F

from calgrid.backbones import build_backbone
from calgrid.backbones.base import Backbone
from calgrid.errors import ConfigError
from calgrid.losses import build_loss
from calgrid.procedures import balcal, build_procedure
from calgrid.procedures.balcal import (
    Adaptor,
    accuracy_and_confidence,
    balancing_weight,
    class_scaling,
    map_channels,
    simplex_frame,
)
from calgrid.training.data import Batch, DeviceImages


@pytest.fixture
def batch():
    torch.manual_seed(1)
    labels = torch.tensor([0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2])
    return Batch(torch.randn(12, 3, 8, 8), labels, torch.arange(12))


def balanced(classes=4, **options):
    torch.manual_seed(0)
    procedure = build_procedure("balcal", **options)
    model = procedure.build_model(build_backbone("resnet8", classes), classes)
    split = DeviceImages(np.zeros((12, 3, 8, 8)), np.zeros(12), (0.5,) * 3, (0.5,) * 3, CPU, False)
    procedure.splits(model, split, split)
    return procedure, model


@pytest.mark.parametrize(
    ("features", "classes", "scale"), [(64, 10, 1.0), (7, 7, 2.5), (5, 2, 0.3)]
)
def test_columns_form_a_simplex(features, classes, scale):
    torch.manual_seed(0)
    frame = simplex_frame(features, classes, scale)
    gram = scale**2 * classes / (classes - 1) * (torch.eye(classes) - 1 / classes)
    torch.testing.assert_close(frame.T @ frame, gram, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(frame.norm(dim=0), torch.full((classes,), scale))
    torch.testing.assert_close(frame.sum(dim=1), torch.zeros(features), rtol=0, atol=1e-6)


def test_class_scaling_by_hand():
    """Six labels of three present classes: sqrt(2 / n_c); classes that are absent keep 1."""
    scaling = class_scaling(torch.tensor([0, 0, 0, 1, 1, 3]), 5)
    assert scaling.tolist() == pytest.approx([math.sqrt(2 / 3), 1.0, 1.0, math.sqrt(2.0), 1.0])
    assert class_scaling(torch.tensor([0, 1, 2]), 3).tolist() == [1.0, 1.0, 1.0]


def test_weight_is_one_where_the_linear_head_is_under_confident():
    labels = torch.arange(40) % 4
    linear = 0.5 * F.one_hot(labels, 4).float()  # all right, at confidence 0.35
    assert balancing_weight(linear, torch.zeros(40, 4), labels, 0.95) == 1.0


@pytest.mark.parametrize("ratio", [0.6, 0.9, 1.0])
def test_solved_weight_balances_confidence_and_accuracy(ratio):
    torch.manual_seed(0)
    labels = torch.randint(0, 5, (400,))
    signal = F.one_hot(torch.where(torch.rand(400) < 0.8, labels, (labels + 1) % 5), 5).float()
    linear, simplex = 12 * signal + torch.randn(400, 5), 0.8 * signal
    weight = balancing_weight(linear, simplex, labels, ratio)
    assert 0 < weight < 1
    gaps = []
    for shift in (-2e-4, 0.0, 2e-4):
        accuracy, confidence = accuracy_and_confidence(linear, simplex, labels, weight + shift)
        gaps.append(confidence - ratio * accuracy)
    assert gaps[0] < 0 < gaps[2]
    assert abs(gaps[1]) < 2e-3


def test_weight_goes_to_zero_where_both_heads_are_over_confident():
    labels = torch.zeros(10, dtype=torch.long)
    wrong = 9 * F.one_hot(torch.ones(10, dtype=torch.long), 3).float()
    assert balancing_weight(wrong, wrong, labels, 0.95) <= 1e-4


def test_accuracy_and_confidence_by_hand_and_in_chunks(monkeypatch):
    first = torch.tensor([[math.log(3.0), 0.0], [0.0, 0.0], [0.0, math.log(4.0)]])
    second = torch.zeros(3, 2)
    labels = torch.tensor([0, 0, 0])
    accuracy, confidence = accuracy_and_confidence(first, second, labels, 1.0)
    assert (accuracy, confidence) == pytest.approx((2 / 3, (0.75 + 0.5 + 0.8) / 3))
    accuracy, confidence = accuracy_and_confidence(first, second, labels, 0.5)
    half = [math.sqrt(3) / (1 + math.sqrt(3)), 0.5, 2 / 3]
    assert (accuracy, confidence) == pytest.approx((2 / 3, sum(half) / 3))
    monkeypatch.setattr(balcal, "CHUNK", 2)
    assert accuracy_and_confidence(first, second, labels, 0.5) == pytest.approx(
        (accuracy, confidence)
    )


def test_training_loss_and_logits_by_hand(batch):
    procedure, model = balanced(lambda0=0.7, beta=2.0)
    model.train()
    logits, total = procedure.forward_loss(model, build_loss("ce", 4), batch)
    # BatchNorm of the first has moved, which training mode ignores
    _, fresh = balanced(lambda0=0.7, beta=2.0)
    fresh.train()
    maps = batch.images
    for stage in fresh.backbone.stages:
        maps = stage(maps)
    linear = fresh.backbone.head(maps.mean(dim=(2, 3)))
    adapted = fresh.activation(fresh.adaptor(maps)).mean(dim=(2, 3))
    unit = adapted / adapted.norm(dim=1, keepdim=True)
    scale = torch.tensor([math.sqrt(4 / 5), math.sqrt(4 / 3), 1.0, 1.0])
    ce = F.cross_entropy
    expected = 0.7 * ce(linear, batch.labels) + 0.3 * ce(unit @ (fresh.frame * scale), batch.labels)
    assert total.item() == pytest.approx(expected.item(), rel=1e-5)
    torch.testing.assert_close(
        logits, 0.7 * linear + 0.3 * unit @ fresh.frame, rtol=1e-4, atol=1e-5
    )


def test_prediction_mixes_with_the_unscaled_frame(batch):
    procedure, model = balanced()
    model.eval()
    procedure.load_state_dict({"lambda": torch.tensor(0.25, dtype=torch.float64)})
    logits, features = procedure.predict(model, batch)
    linear, directions, _ = model(batch.images)
    torch.testing.assert_close(logits, 0.25 * linear + 0.75 * directions @ model.frame)
    torch.testing.assert_close(directions.norm(dim=1), torch.ones(12))
    assert torch.equal(features, model.backbone.features(batch.images))
    assert "frame" in dict(model.named_buffers())  # so it is not trained
    torch.testing.assert_close(linear, model.backbone.head(features))


@pytest.mark.parametrize(("drop_last", "samples"), [(False, 40), (True, 32)])
def test_weight_is_solved_from_the_logits_of_every_sample_of_the_epoch(
    drop_last, samples, make_spec, prepared, tmp_path, monkeypatch
):
    solved = []

    def solve(*arguments):
        solved.append(arguments)
        return balancing_weight(*arguments)

    monkeypatch.setattr(balcal, "balancing_weight", solve)
    _, position = run(make_spec("ce", "balcal", epochs=2, drop_last=drop_last), prepared, tmp_path)
    for (linear, simplex, labels, delta), row in zip(solved, position.history, strict=True):
        assert linear.shape == simplex.shape == (samples, 4)
        assert linear.dtype == torch.float32
        assert len(labels) == samples
        assert row["linear_accuracy"] == pytest.approx(
            (linear.argmax(1) == labels).float().mean().item()
        )
        assert row["linear_confidence"] == pytest.approx(linear.softmax(1).amax(1).mean().item())
        assert row["lambda"] == balancing_weight(linear, simplex, labels, delta)


def test_too_few_features_are_refused(refuses):
    with refuses(ConfigError, "64 features for 65 classes", "wider backbone"):
        build_procedure("balcal").build_model(build_backbone("resnet8", 65), 65)
    square = build_procedure("balcal").build_model(build_backbone("resnet8", 64), 64)
    assert square.frame.shape == (64, 64)


def test_a_backbone_without_feature_maps_is_refused(refuses):
    tokens = Backbone([nn.Sequential(nn.Flatten(), nn.Linear(12, 8))], nn.Identity(), 8, 4)
    with refuses(ConfigError, "feature map", "convolutional backbone"):
        build_procedure("balcal").build_model(tokens, 4)


def test_looking_for_the_channels_changes_nothing():
    torch.manual_seed(0)
    backbone = build_backbone("resnet8", 4).train()
    before, state = {k: v.clone() for k, v in backbone.state_dict().items()}, torch.get_rng_state()
    assert map_channels(backbone) == 64
    assert backbone.training
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, before[name]) for name, value in backbone.state_dict().items())


@pytest.mark.parametrize(("channels", "inner"), [(64, 32), (640, 320), (1024, 512), (2048, 512)])
def test_width_inside_the_adaptor(channels, inner):
    with torch.device("meta"):
        adaptor = Adaptor(channels)
        assert adaptor(torch.zeros(2, channels, 4, 4)).shape == (2, channels, 4, 4)
    assert adaptor.branch[2].weight.shape == (inner, channels, 3, 3)
    assert all(module.bias is None for module in adaptor.modules() if isinstance(module, nn.Conv2d))
