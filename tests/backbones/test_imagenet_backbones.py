"""Networks of torchvision taken apart, and their published weights: cached, wrong, missing."""

import hashlib
import io
import pickle
from functools import partial
from types import SimpleNamespace

import pytest
import requests
import torch
import torchvision
from tests.backbones.networks import FAMILIES
from torch import nn

from calgrid.backbones import build_backbone
from calgrid.backbones.imagenet import ImageNetDenseNet121, take_apart
from calgrid.components.registry import load
from calgrid.errors import DataError

#: V1 weights: the end of a name is the beginning of the file's SHA-256
FILES = {
    "imagenet_resnet50": "resnet50-0676ba61.pth",
    "imagenet_resnet101": "resnet101-63fe2227.pth",
    "imagenet_densenet121": "densenet121-a639ec97.pth",
    "imagenet_wide_resnet50": "wide_resnet50_2-95faca4d.pth",
    "imagenet_swin_b": "swin_b-68c6b09e.pth",
    "imagenet_vit_b16": "vit_b_16-c867db91.pth",
    "imagenet_vit_b32": "vit_b_32-d86f8d99.pth",
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Folder in which torch.hub keeps weights, for this test alone; no test reaches the internet,
    and two builders of torchvision make small networks.
    """
    resnet, densenet = torchvision.models.resnet18, torchvision.models.DenseNet
    monkeypatch.setattr(torchvision.models, "resnet50", resnet)
    monkeypatch.setattr(torchvision.models, "densenet121", partial(densenet, 4, (2, 2, 2, 2), 8))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    monkeypatch.setattr("pooch.core.time", SimpleNamespace(sleep=lambda _: None))

    def offline(*_, **_options):
        raise requests.ConnectionError("no network here")

    monkeypatch.setattr(requests, "get", offline)
    return tmp_path / "hub" / "checkpoints"


def images(size=64):
    return torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("name", FILES)
def test_weights_are_version_1_by_name(name):
    file = load("backbone", name).weights_file()
    assert file["name"] == FILES[name]
    assert file["url"] == f"https://download.pytorch.org/models/{FILES[name]}"
    assert file["sha256"] == FILES[name][-12:-4]


@pytest.mark.parametrize("family", FAMILIES)
def test_stages_pool_and_head_are_the_networks_own_forward_pass_and_tensors(family):
    torch.manual_seed(1)
    network = FAMILIES[family]().eval()
    for parameter in network.parameters():  # a vision transformer's head is drawn as zeros
        nn.init.normal_(parameter, std=0.1)
    expected = network(images())
    stages, pool, head = take_apart(network)
    maps = images()
    for stage in stages:
        before = maps.clone()
        after = stage(maps)
        assert torch.equal(maps, before)
        maps = after
    features = pool(maps)
    assert len(stages) == 5
    assert features.shape == (2, head.in_features)
    torch.testing.assert_close(head(features), expected)
    parts = nn.ModuleList([*stages, pool, head])
    assert len(parts.state_dict()) == len(network.state_dict())
    assert {id(p) for p in parts.parameters()} == {id(p) for p in network.parameters()}


def published(cache, monkeypatch, change=lambda state: state):
    """Put weights into the cache as if they were the published ones of DenseNet-121; returns the
    network.
    """
    torch.manual_seed(7)
    network = torchvision.models.densenet121()
    buffer = io.BytesIO()
    torch.save(change(network.state_dict()), buffer)
    keep(cache, monkeypatch, buffer.getvalue())
    return network


def keep(cache, monkeypatch, content):
    prefix = hashlib.sha256(content).hexdigest()[:8]
    file = {"name": f"densenet121-{prefix}.pth", "url": "https://example.org/x.pth"}
    file["sha256"] = prefix
    cache.mkdir(parents=True)
    (cache / file["name"]).write_bytes(content)
    monkeypatch.setattr(ImageNetDenseNet121, "weights_file", classmethod(lambda cls: file))


def test_published_weights_and_head_are_taken_from_the_cache(cache, monkeypatch):
    network = published(cache, monkeypatch).eval()
    model = build_backbone("imagenet_densenet121", 1000, pretrained=True).eval()
    torch.testing.assert_close(model(images()), network(images()))


def test_without_pretrained_nothing_is_read(cache):
    assert build_backbone("imagenet_densenet121", 10).head.out_features == 10
    assert not cache.exists()


def test_another_number_of_classes_gets_a_new_head_on_published_features(cache, monkeypatch):
    network = published(cache, monkeypatch).eval()
    model = build_backbone("imagenet_densenet121", 7, pretrained=True).eval()
    assert model(images()).shape == (2, 7)
    network.classifier = nn.Identity()
    torch.testing.assert_close(model.features(images()), network(images()))


def test_names_of_old_files_are_understood(cache, monkeypatch):
    """The published DenseNet file says ``denselayer1.norm.1`` where the network has
    ``denselayer1.norm1``.
    """

    def old(state):
        return {
            name.replace(".norm1.", ".norm.1.").replace(".conv2.", ".conv.2."): tensor
            for name, tensor in state.items()
        }

    network = published(cache, monkeypatch, old)
    model = build_backbone("imagenet_densenet121", 1000, pretrained=True)
    first, last = network.features.denseblock1, network.features.denseblock4
    found = model.stages[1][0].denselayer1.norm1.weight
    assert torch.equal(found, first.denselayer1.norm1.weight)
    found = model.stages[4][1].denselayer2.conv2.weight
    assert torch.equal(found, last.denselayer2.conv2.weight)


def test_weights_of_another_network_are_refused(cache, monkeypatch, refuses):
    published(cache, monkeypatch, lambda state: {**state, "features.norm5.weight": torch.ones(3)})
    with refuses(DataError, "do not fit DenseNet", "norm5.weight"):
        build_backbone("imagenet_densenet121", 1000, pretrained=True)


class Hostile:
    def __reduce__(self):
        return print, ("run",)


def test_code_in_a_file_is_never_run(cache, monkeypatch, refuses, capsys):
    keep(cache, monkeypatch, pickle.dumps(Hostile(), protocol=2))
    with refuses(DataError, "cannot be read"):
        build_backbone("imagenet_densenet121", 1000, pretrained=True)
    assert capsys.readouterr().out == ""


def test_another_file_of_the_published_name_is_refused(cache, refuses):
    cache.mkdir(parents=True)
    path = cache / FILES["imagenet_resnet50"]
    path.write_bytes(b"something else")
    with refuses(DataError, str(path), "is not the published file", "instead of 0676ba61..."):
        build_backbone("imagenet_resnet50", 1000, pretrained=True)
    assert path.read_bytes() == b"something else"


def test_missing_weights_without_a_network_are_one_sentence(cache, refuses):
    name = FILES["imagenet_resnet50"]
    url = f"https://download.pytorch.org/models/{name}"
    with refuses(DataError, url, "no network here", f"put {name}", str(cache), "by hand"):
        build_backbone("imagenet_resnet50", 10, pretrained=True)
