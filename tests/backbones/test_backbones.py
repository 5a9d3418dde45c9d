"""Every backbone: published size, features before a linear head, stages that compose to the
features.

Sizes are counted for all of them without computing anything; numbers are computed by a small
network of each kind.
"""

from functools import cache, partial

import pytest
import torch
import torchvision
from tests.backbones.networks import FAMILIES, OURS, RESNET, TINY
from tests.training.elsewhere import REFUSED
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from calgrid.backbones import build_backbone, trial
from calgrid.backbones._resnet import PaddedShortcut
from calgrid.backbones.airbench import Whitening
from calgrid.backbones.base import drop_features
from calgrid.backbones.imagenet import take_apart
from calgrid.components.registry import describe, descriptions
from calgrid.errors import ConfigError

BACKBONES = sorted(set(descriptions("backbone")) - {"timm"})
#: backbone -> classes: parameters, tensors, entries of running means and variances, features: all
#: counted in the official code
OFFICIAL = {
    "resnet18": ({10: 11_173_962, 100: 11_220_132}, 62, 9_600, 512),
    "resnet50": ({10: 23_520_842, 100: 23_705_252}, 161, 53_120, 2048),
    "resnet101": ({10: 42_512_970, 100: 42_697_380}, 314, 105_344, 2048),
    "resnet110": ({10: 45_864_522, 100: 46_048_932}, 341, 114_560, 2048),
    "wrn26_10": ({10: 36_481_434, 100: 36_539_124}, 86, 20_192, 640),
    "densenet121": ({10: 6_956_298, 100: 7_048_548}, 362, 83_520, 1024),
    "resnet50_tiny": ({200: 25_138_952}, 161, 53_120, 8192),
    "resnet101_tiny": ({200: 44_131_080}, 314, 105_344, 8192),
}


def of_torchvision(family):
    stages, pool, head = take_apart(FAMILIES[family]())
    return nn.Sequential(*stages, pool, head)


#: networks with all kinds of layers, and the size of their images
OF_EACH_LAYER = {
    **{name: (partial(kind, 5), 32) for name, kind in OURS.items()},
    **{name: (partial(build_backbone, name, 5), 32) for name in ("resnet9", "airbench24")},
    "tiny": (partial(TINY, 5), 64),
    **{f"torchvision {name}": (partial(of_torchvision, name), 64) for name in FAMILIES},
    "timm": (partial(build_backbone, "timm/test_vit", 5), 160),
}


class Operations(TorchDispatchMode):
    """Names of the operations of a computation."""

    def __init__(self):
        super().__init__()
        self.names = set()

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.names.add(str(function))
        return function(*arguments, **(options or {}))


@cache
def on_meta(name):
    """A network without numbers, for the first of its registered numbers of classes."""
    with torch.device("meta"):
        return build_backbone(name, next(iter(describe("backbone", name).info["parameters"])))


def count_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def build(name, seed=0, num_classes=10):
    torch.manual_seed(seed)
    return build_backbone(name, num_classes).eval()


def images(size, n=3):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


def test_small_networks_have_the_sizes_counted_by_hand():
    """``resnet20`` has 269,722 with shortcuts of option A, and two projections."""
    # a 3x3 convolution has 9 * in * out weights, batch normalisation 2 * out, the head 64 * 10 + 10
    first, second, third = 9 * 16 * 16 + 32, 9 * 32 * 32 + 64, 9 * 64 * 64 + 128
    wider = (9 * 16 * 32 + 64) + (9 * 32 * 64 + 128)
    resnet8 = (9 * 3 * 16 + 32) + 2 * first + second + third + wider + 650
    assert count_parameters(build("resnet8")) == resnet8 == 75_290
    projections = (16 * 32 + 2 * 32) + (32 * 64 + 2 * 64)
    assert count_parameters(build("resnet20")) == 269_722 + projections == 272_474


@pytest.mark.parametrize("name", OFFICIAL)
def test_cifar_networks_have_the_sizes_of_the_official_code(name):
    parameters, tensors, running, features = OFFICIAL[name]
    assert describe("backbone", name).info["parameters"] == parameters
    model = on_meta(name)
    assert len(list(model.parameters())) == tensors
    assert (
        sum(buffer.numel() for key, buffer in model.named_buffers() if "running_" in key) == running
    )
    assert model.num_features == features


@pytest.mark.parametrize("name", OF_EACH_LAYER)
def test_gradients_have_deterministic_kernels_on_a_gpu(name):
    build, size = OF_EACH_LAYER[name]
    with torch.device("meta"):
        model = build().train()
    with Operations() as operations:
        model(torch.zeros(2, 3, size, size, device="meta")).sum().backward()
    found = [each for each in operations.names if REFUSED.search(each)]
    assert found == []


@pytest.mark.parametrize("name", BACKBONES)
def test_registered_facts_are_those_of_the_network(name, monkeypatch):
    info, model = describe("backbone", name).info, on_meta(name)
    body = count_parameters(model) - count_parameters(model.head)
    for classes, parameters in info["parameters"].items():
        assert body + (model.num_features + 1) * classes == parameters
    monkeypatch.setattr(trial, "build_backbone", lambda *_: model)
    classes, least = model.head.out_features, info["min_size"]
    trial.check_images(name, classes, (least, least))
    if "max_size" in info:
        with pytest.raises(ConfigError, match=r"does not take images|pixels only"):
            trial.check_images(name, classes, (2 * least, 2 * least))


@pytest.mark.parametrize("kind", OURS.values(), ids=OURS)
@pytest.mark.parametrize("size", [8, 40])
def test_stages_pool_and_head_are_the_forward_pass_and_overwrite_nothing(kind, size):
    model, x = kind(7).eval(), images(size)
    for stage in model.stages:
        before = x.clone()
        after = stage(x)
        assert torch.equal(x, before)
        x = after
    features = model.features(images(size))
    assert features.shape == (3, model.num_features)
    assert torch.equal(model.pool(x), features)
    logits = model(images(size))
    assert torch.equal(model.head(features), logits)
    assert logits.shape == (3, 7)


def test_stages_are_stem_and_three_levels_at_halving_resolution():
    x, shapes = images(16), []
    for stage in build("resnet8").stages:
        x = stage(x)
        shapes.append(tuple(x.shape[1:]))
    assert shapes == [(16, 16, 16), (16, 16, 16), (32, 8, 8), (64, 4, 4)]


@pytest.mark.parametrize("kind", OURS.values(), ids=OURS)
def test_features_stay_as_returned_and_carry_gradients(kind):
    model = kind(5)
    features = model.features(images(8))
    before = features.detach().clone()
    model.head(features).sum().backward()
    assert torch.equal(features, before)
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(
    ("build", "stage", "std"),
    [
        (partial(build_backbone, "resnet20", 10), 3, (2 / (9 * 64)) ** 0.5),
        (partial(RESNET, 5), 4, (3 * 9 * 512) ** -0.5),
        (partial(TINY, 5), 4, (2 / (9 * 512)) ** 0.5),
    ],
)
def test_all_but_the_official_cifar_networks_are_drawn_as_he_proposes(build, stage, std):
    """Those keep PyTorch's initialisation, uniform with variance 1 / (3 fan_in)."""
    torch.manual_seed(0)
    weight = build().stages[stage][1].conv2.weight
    assert weight.std().item() == pytest.approx(std, rel=0.02)


def test_tiny_imagenet_networks_keep_the_quarters_of_the_last_map():
    """An 8x8 map of four constant quarters has these constants as the features of its channel."""
    quarters = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    maps = quarters.repeat_interleave(4, 0).repeat_interleave(4, 1).reshape(1, 1, 8, 8)
    assert on_meta("resnet50_tiny").pool(maps).tolist() == [[1.0, 2.0, 3.0, 4.0]]


def on_a_cifar_stem(kind):
    """The same small network of torchvision with the stem of small images."""
    first = nn.Conv2d(3, 64 if kind == "resnet" else 8, 3, padding=1, bias=False)
    if kind == "resnet":
        block = torchvision.models.resnet.Bottleneck
        network = torchvision.models.ResNet(block, (1, 2, 1, 2), num_classes=5)
        network.conv1, network.maxpool = first, nn.Identity()
    else:
        network = torchvision.models.DenseNet(4, (2, 11, 1, 2), 8, num_classes=5)
        network.features.conv0 = first
        network.features.norm0 = network.features.relu0 = network.features.pool0 = nn.Identity()
    return network


@pytest.mark.parametrize("kind", ["resnet", "densenet"])
def test_trunks_compute_what_torchvisions_compute(kind):
    """Tensors have the same order in both, so that one's weights are the other's."""
    torch.manual_seed(0)
    model, reference = OURS[kind](5), on_a_cifar_stem(kind)
    ours = model.state_dict()
    reference.load_state_dict(dict(zip(reference.state_dict(), ours.values(), strict=True)))
    torch.testing.assert_close(model(images(32)), reference(images(32)), rtol=1e-4, atol=1e-4)
    for tensor, expected in zip(
        model.state_dict().values(), reference.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=1e-4)


def test_option_a_shortcut_subsamples_and_appends_zero_channels():
    x = torch.arange(16.0).reshape(1, 1, 4, 4)
    expected = torch.tensor([[[0.0, 2.0], [8.0, 10.0]], [[0.0, 0.0], [0.0, 0.0]]])
    assert torch.equal(PaddedShortcut(1, 2)(x)[0], expected)


def test_what_cannot_be_built_is_refused():
    with pytest.raises(ConfigError, match="'resnet8' has no pretrained weights"):
        build_backbone("resnet8", 10, pretrained=True)
    with pytest.raises(ConfigError, match="Unknown backbone 'resnet20/wide'"):
        build_backbone("resnet20/wide", 10)
    with pytest.raises(ConfigError, match="at least 2, got 1"):
        build_backbone("resnet8", 1)


# dropout before the head


def test_dropout_before_the_head_is_for_training_alone_and_leaves_features_whole():
    plain, dropped = build("resnet8"), build("resnet8")
    drop_features(dropped, 0.5)
    assert list(dropped.state_dict()) == list(plain.state_dict())
    assert type(dropped.head) is torch.nn.Linear
    assert torch.equal(dropped(images(32)), plain(images(32)))
    features = torch.ones(2000, dropped.num_features)
    dropped.train()
    torch.manual_seed(1)
    logits = dropped.head(features)
    torch.manual_seed(1)
    kept = torch.nn.functional.dropout(features, 0.5)
    assert set(kept.unique().tolist()) == {0.0, 2.0}
    assert torch.equal(logits, plain.head(kept))


@pytest.mark.parametrize("name", [*OURS, "resnet9", "airbench24"])
def test_a_training_step_reads_no_memory_that_was_never_written(name, monkeypatch):
    """So jobs do without torch's filling of new tensors; with it, such memory is NaN."""
    gradients = {}
    torch.set_deterministic_debug_mode("error")
    for fills in (True, False):
        monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", fills)
        torch.manual_seed(0)
        model = OF_EACH_LAYER[name][0]().train()
        model(images(16)).logsumexp(1).sum().backward()
        trained = [each for each in model.parameters() if each.requires_grad]
        gradients[fills] = torch.cat([each.grad.flatten() for each in trained])
    torch.set_deterministic_debug_mode("default")
    assert torch.equal(gradients[True], gradients[False])


def test_whitening_decorrelates_squares_of_the_first_training_images():
    rng = torch.Generator().manual_seed(2)
    smooth = nn.functional.interpolate(torch.randn(50, 3, 5, 5, generator=rng), size=16)
    pixels = smooth + torch.randn(50, 3, 16, 16, generator=rng)
    layer = Whitening()
    layer.read(pixels.split(20))
    outputs = layer(pixels).transpose(0, 1).flatten(1).double()
    moments = outputs[:12] @ outputs[:12].T / outputs.shape[1]
    # eigenvalues are near 1 and more, so that the constant added to them hardly matters
    torch.testing.assert_close(moments, torch.eye(12, dtype=torch.float64), atol=2e-3, rtol=0)
    assert torch.equal(outputs[12:], -outputs[:12])
    other = Whitening()
    other.read([pixels, torch.zeros(1, 3, 16, 16)])
    assert not torch.equal(other.weight, layer.weight)


def test_airbench_trains_neither_whitening_nor_scales_and_its_head_is_linear():
    model = build("airbench24")
    assert not [name for name, _ in model.named_parameters() if name.startswith("stages.0")]
    frozen = [name for name, each in model.named_parameters() if not each.requires_grad]
    assert len(frozen) == 6
    assert all(name.endswith("weight") for name in frozen)
    # 3x3 convolutions, six shifts, the head
    convolutions = 9 * (24 * 24 + 24 * 24 + 24 * 96 + 3 * 96 * 96)
    assert count_parameters(model) == convolutions + 2 * (24 + 96 + 96) + 97 * 10
    x = images(32)
    for stage in model.stages:
        x = stage(x)
    torch.testing.assert_close(model.features(images(32)), x.amax((2, 3)) / 9)
