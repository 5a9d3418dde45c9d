"""Models of timm as backbones: their own forward pass, names, and what cannot be one."""

import copy

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from calgrid.backbones import build_backbone, catalogue
from calgrid.backbones.catalogue import check_timm_name, timm_names
from calgrid.errors import ConfigError, DataError

#: timm's own small models for tests, of families that have little in common
MODELS = ("test_resnet", "test_vit", "test_convnext", "test_efficientnet")


def images(size=160, n=2):
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(0))


def build(name, num_classes=5, seed=1):
    torch.manual_seed(seed)
    return build_backbone(f"timm/{name}", num_classes).eval()


@pytest.fixture(params=MODELS)
def name(request):
    return request.param


def test_stages_pool_and_head_are_the_models_own_forward_pass(name):
    torch.manual_seed(1)
    own = timm.create_model(name, num_classes=5).eval()
    model = build(name)
    assert torch.equal(model(images()), own(images()))
    (trunk,), features = model.stages, model.features(images())
    assert torch.equal(model.pool(trunk(images())), features)
    assert torch.equal(model.head(features), model(images()))
    assert isinstance(model.head, nn.Linear)
    assert features.shape == (2, model.num_features)


def test_weights_survive_a_round_trip_and_copies_are_independent(name, tmp_path):
    model, other = build(name), build(name, seed=2)
    twin = copy.deepcopy(model)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    expected = model(images())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(other(images()), expected)
    assert torch.equal(twin(images()), expected)


def test_a_model_of_one_image_size_says_so(refuses):
    said = "'timm/test_vit' takes images of 160x160 pixels only", "these have 32x32"
    with refuses(ConfigError, *said):
        build("test_vit")(images(32))


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "resnetv2_50"])
def test_a_model_without_one_linear_classifier_is_refused(name, refuses):
    with (
        torch.device("meta"),
        refuses(ConfigError, f"'timm/{name}' does not end in one linear layer"),
    ):
        build_backbone(f"timm/{name}", 5)


def test_vit_b16_384_is_the_named_model_of_timm():
    with torch.device("meta"):
        model = build_backbone("vit_b16_384", 100)
        own = timm.create_model("vit_base_patch16_384", num_classes=100)
    assert {tuple(p.shape) for p in model.parameters()} == {
        tuple(p.shape) for p in own.parameters()
    }
    assert own.pretrained_cfg["tag"] == "augreg_in21k_ft_in1k"
    assert timm.get_pretrained_cfg("vit_base_patch16_384.augreg_in21k_ft_in1k").has_weights


def test_published_weights_that_cannot_be_had_are_one_sentence(monkeypatch, refuses):
    asked = []

    def offline(name, **options):
        asked.append((name, options))
        raise OSError("no\nnetwork")

    monkeypatch.setattr(timm, "create_model", offline)
    said = (
        "'timm/test_vit' could not be loaded (no network)",
        "timm/test_vit.r160_in1k",
        "HF_HOME",
    )
    with refuses(DataError, *said):
        build_backbone("timm/test_vit", 5, pretrained=True)
    assert asked == [("test_vit", {"pretrained": True, "num_classes": 5})]


def test_a_model_without_published_weights_cannot_be_pretrained(refuses):
    without = next(
        name for name in timm.list_models() if not timm.get_pretrained_cfg(name).has_weights
    )
    with refuses(ConfigError, f"'timm/{without}' has no pretrained weights"):
        build_backbone(f"timm/{without}", 5, pretrained=True)


def test_weights_that_only_another_model_has_are_refused_by_timm(refuses):
    with refuses(
        ConfigError, "Unknown timm model 'test_vit.untrained'", "(untrained) for test_vit"
    ):
        build_backbone("timm/test_vit.untrained", 5)


# names, known without importing timm


def test_names_are_those_that_timm_lists():
    assert set(timm_names()) == set(timm.list_models())
    for name in timm.list_pretrained():
        check_timm_name(name)


def test_no_name_is_needed_to_be_known_where_timm_is_not_installed(monkeypatch):
    timm_names.cache_clear()
    monkeypatch.setattr(catalogue.importlib.util, "find_spec", lambda name: None)
    check_timm_name("anything")
    monkeypatch.undo()
    timm_names.cache_clear()
    assert timm_names()


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("resnet5", ["Unknown timm model 'resnet5' in grids[0]", "did you mean ", "resnet50"]),
        ("test_vit.r160_in2k", ["'test_vit.r160_in2k'", "did you mean test_vit.r160_in1k?"]),
        ("zzzzzzzzzz", ["'zzzzzzzzzz'", "timm.list_models(pretrained=True) lists what there is"]),
        ("", ["grids[0]: 'timm' is a library; write timm/ and the name"]),
    ],
)
def test_an_unknown_name_is_refused_with_near_ones(name, parts, refuses):
    with refuses(ConfigError, *parts):
        check_timm_name(name, "grids[0]")


def test_the_library_itself_is_no_backbone(refuses):
    with refuses(ConfigError, "'timm' is a library"):
        build_backbone("timm", 5)


def test_names_are_checked_without_torch_or_timm(run_python):
    program = (
        "import sys\nfrom calgrid.backbones.catalogue import describe\n"
        "print(describe('timm/test_vit').id, {'torch', 'timm', 'torchvision'} & set(sys.modules))"
    )
    assert run_python(program).strip() == "timm/test_vit set()"
