"""Every backbone: published size, features before a linear head, stages that compose to the features."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from calgrid.backbones import build_backbone
from calgrid.backbones._base import count_parameters
from calgrid.backbones._resnet import PaddedShortcut
from calgrid.errors import ConfigError
from calgrid.registry import spec, specs

BACKBONES = sorted(specs("backbone"))
# a 3x3 convolution has 9 * in * out weights, batch normalisation 2 * out, the head 64 * 10 + 10
RESNET8_BY_HAND = (
    (9 * 3 * 16 + 32)
    + (2 * (9 * 16 * 16 + 32))
    + (9 * 16 * 32 + 64 + 9 * 32 * 32 + 64)
    + (9 * 32 * 64 + 128 + 9 * 64 * 64 + 128)
    + 650
)


@pytest.fixture(params=BACKBONES)
def name(request):
    return request.param


def build(name, seed=0, num_classes=10):
    torch.manual_seed(seed)
    return build_backbone(name, num_classes).eval()


def images(size, n=3):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_resnet8_has_the_size_counted_by_hand():
    assert count_parameters(build("resnet8")) == RESNET8_BY_HAND == 75_290


def test_resnet20_has_the_published_size():
    assert count_parameters(build("resnet20")) == 269_722


def test_registered_facts_hold(name):
    info = spec("backbone", name).info
    for num_classes, parameters in info["parameters"].items():
        assert count_parameters(build(name, num_classes=num_classes)) == parameters
    assert build(name).num_features == info["num_features"]


@pytest.mark.parametrize("size", [8, 32, 40])
def test_features_and_logits_have_documented_shapes(name, size):
    model = build(name, num_classes=7)
    assert model.features(images(size)).shape == (3, model.num_features)
    assert model(images(size)).shape == (3, 7)


def test_head_of_features_is_forward(name):
    model = build(name)
    assert isinstance(model.head, torch.nn.Linear)
    assert torch.equal(model.head(model.features(images(8))), model(images(8)))


def test_stages_then_pool_are_features(name):
    model = build(name)
    x = images(16)
    for stage in model.stages:
        x = stage(x)
    assert torch.equal(model.pool(x), model.features(images(16)))


def test_stages_are_stem_and_three_levels_at_halving_resolution():
    x, shapes = images(16), []
    for stage in build("resnet8").stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 16, 16), (16, 16, 16), (32, 8, 8), (64, 4, 4)]


def test_no_stage_overwrites_its_input(name):
    x = images(8)
    for stage in build(name).stages:
        before = x.clone()
        after = stage(x)
        assert torch.equal(x, before)
        x = after


def test_features_stay_as_returned_and_carry_gradients(name):
    model = build(name).train()
    features = model.features(images(8))
    before = features.detach().clone()
    model.head(features).sum().backward()
    assert torch.equal(features, before)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_channels_last_gives_the_same_logits(name):
    model, x = build(name), images(8)
    plain = model(x)
    strided = model.to(memory_format=torch.channels_last)(x.to(memory_format=torch.channels_last))
    torch.testing.assert_close(strided, plain, rtol=1e-4, atol=1e-5)


def test_weights_survive_a_round_trip_through_a_file(name, tmp_path):
    model, other = build(name, seed=0), build(name, seed=1)
    assert not torch.equal(model(images(8)), other(images(8)))
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(model(images(8)), other(images(8)))


def test_equal_seeds_draw_equal_weights(name):
    first, second = build(name, seed=3).state_dict(), build(name, seed=3).state_dict()
    assert all(torch.equal(first[key], second[key]) for key in first)


def test_convolutions_are_drawn_with_he_standard_deviation():
    weight = build("resnet20").stages[3][1].conv1.weight
    assert weight.std().item() == pytest.approx((2 / (9 * 64)) ** 0.5, rel=0.02)


def test_option_a_shortcut_subsamples_and_appends_zero_channels():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    expected = torch.tensor([[[0.0, 2.0], [8.0, 10.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert torch.equal(PaddedShortcut(1, 2)(x)[0], expected)


def test_pretrained_is_refused_where_no_weights_are_published(name):
    with pytest.raises(ConfigError, match=f"'{name}' has no pretrained weights"):
        build_backbone(name, 10, pretrained=True)


def test_unknown_backbone_names_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'resnet20'"):
        build_backbone("resnet_20", 10)


def test_one_class_is_refused():
    with pytest.raises(ConfigError, match="at least 2, got 1"):
        build_backbone("resnet8", 1)
