"""Runs whose weights are taken as they are: fetched, verified, recorded, predicted, calibrated;
nothing is trained.
"""

import hashlib
import io
import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import timm
import torch
import torchvision
from safetensors.torch import save_file
from tests.backbones.test_focal_calibration import CLASSES, TheirDenseNet, trained
from tests.jobs.small import HOME, predict, take_weights

from calgrid.backbones import build_backbone
from calgrid.backbones.imagenet import ImageNetResNet50
from calgrid.backbones.small_images import SmallImageDenseNet
from calgrid.backbones.weights import load_state, read_state
from calgrid.datasets import ImageSplit, Prepared
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.jobs import published
from calgrid.jobs.aggregate import _costs
from calgrid.plan.plan import Plan
from calgrid.report.provenance import _origin
from calgrid.storage.checkpoint import load_checkpoint, save_checkpoint
from calgrid.storage.logits import read_logits
from calgrid.storage.publish import Call
from calgrid.storage.records import MANIFEST, RunKey
from calgrid.storage.tables import read_frame
from calgrid.study.slow_checks import check_weights
from calgrid.study.study import Study

KEY = RunKey("published", "imagenet", "imagenet_resnet50", "ce", 1)


@pytest.fixture
def network(tmp_path, monkeypatch):
    """A small residual network in the cache of torch.hub in place of the ResNet-50."""
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    monkeypatch.setattr(ImageNetResNet50, "model", "resnet18")
    torch.manual_seed(3)
    network = torchvision.models.resnet18()
    buffer = io.BytesIO()
    torch.save(network.state_dict(), buffer)
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    file = {
        "name": f"resnet-{digest[:8]}.pth",
        "url": "https://example.org/r.pth",
        "sha256": digest[:8],
    }
    monkeypatch.setattr(ImageNetResNet50, "weights_file", classmethod(lambda cls: file))
    cache = tmp_path / "torch" / "hub" / "checkpoints"
    cache.mkdir(parents=True)
    (cache / file["name"]).write_bytes(buffer.getvalue())
    return network.eval(), cache / file["name"], digest


@pytest.fixture(autouse=True)
def no_folder(tmp_path):
    """Data sets of these tests are in no folder."""
    (tmp_path / MANIFEST).write_text("{}")


@pytest.fixture
def plan():
    grid = {
        "protocol": "published",
        "datasets": ["imagenet"],
        "backbones": ["imagenet_resnet50"],
        "methods": ["ce"],
    }
    return Plan(Study({"study": "s", "grids": [{**grid, "seeds": [1]}]}, HOME))


def prepared(side=32, n_classes=1000):
    """A data set without training images: three pictures of a side for val, four for test."""
    rng = np.random.default_rng(0)
    splits = {}
    for name, count in (("val", 3), ("test", 4)):
        images = rng.integers(0, 256, (count, 3, side, side), dtype=np.uint8)
        splits[name] = ImageSplit(images, rng.integers(0, n_classes, count), np.arange(count))
    return Prepared(
        "imagenet",
        "dataset",
        n_classes,
        (0.5,) * 3,
        (0.25,) * 3,
        splits,
        (),
        {"image_shape": [3, side, side]},
    )


@pytest.fixture
def take(monkeypatch, plan, tmp_path):
    """Run the stage ``train`` on such a data set; returns the folder of the run."""

    def run(data):
        for stage in ("published", "predict"):
            monkeypatch.setattr(f"calgrid.jobs.{stage}.open_prepared", lambda *_, **__: data)
        take_weights(plan.train(KEY).spec, tmp_path, tmp_path / "run")
        return tmp_path / "run"

    return run


def test_the_run_holds_the_published_weights_and_says_where_they_are_from(network, take, plan):
    model, file, digest = network
    run = take(prepared())
    states, description = load_checkpoint(run / "model.safetensors", plan.train(KEY).fingerprint)
    assert set(states) == {"last.model"}
    assert torch.equal(states["last.model"]["head.weight"], model.fc.weight)
    assert torch.equal(states["last.model"]["stages.0.0.weight"], model.conv1.weight)
    assert description["spec"]["protocol"]["weights"] == "published"
    record = json.loads((run / "train.json").read_text())
    assert record["weights"] == {
        "source": "published",
        "url": "https://example.org/r.pth",
        "path": file.name,
        "size": file.stat().st_size,
        "sha256": digest,
    }
    assert (record["epochs"], record["trained_parameters"], record["interruptions"]) == (0, 0, 0)
    assert record["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert _origin(record) == f"published weights, {file.name} of https://example.org/r.pth"
    history = read_frame(run / "history.parquet", "history")
    assert list(history) == ["epoch"]
    assert history.empty


def test_its_logits_are_those_of_the_network_and_its_cost_is_not_training(
    network, take, plan, tmp_path
):
    model, _, _ = network
    data = prepared()
    run = take(data)
    logits = tmp_path / "predict"
    predict(plan.predict(KEY).spec, run / "model.safetensors", tmp_path, logits)
    for name, split in data.splits.items():
        images = (torch.tensor(split.images).float() / 255 - 0.5) / 0.25
        stored = read_logits(logits / f"logits/last/{name}.parquet")
        np.testing.assert_allclose(
            stored.logits, model(images).detach().numpy(), rtol=1e-4, atol=1e-4
        )
        assert np.array_equal(stored.label, split.labels)
        assert stored.features.shape == (len(split.labels), 512)
    entry = {
        "key": KEY._asdict(),
        "first_stage": None,
        "external": False,
        "train": run,
        "predict": logits,
        "calibrate": tmp_path / "calibrate",
    }
    rows = list(_costs(entry, []))
    assert [row["stage"] for row in rows] == ["weights", "predict"]
    assert rows[0]["epochs"] == 0
    assert rows[0]["seconds"] > 0


def test_a_file_of_another_content_is_refused(network, take, refuses):
    _, file, _ = network
    file.write_bytes(b"something else")
    with refuses(DataError, str(file), "is not the published file"):
        take(prepared())


@pytest.mark.parametrize(
    ("data", "kind", "parts"),
    [
        (
            {"n_classes": 10},
            DataError,
            ["'imagenet' has 10 classes", "'imagenet_resnet50' have 1000", "fine-tune"],
        ),
        ({"side": 16}, ConfigError, ["takes images of 32x32 pixels or more", "these have 16x16"]),
    ],
)
def test_data_that_does_not_fit_is_refused_by_the_job_where_planning_could_not_know(
    network, take, refuses, tmp_path, data, kind, parts
):
    with refuses(kind, *parts):
        take(prepared(**data))
    assert not (tmp_path / "run" / "model.safetensors").exists()


# a checkpoint of torrvision/focal_calibration

CIFAR = RunKey("focal_calibration", "cifar10", "densenet121", "ls", 1)
PLACE = "focal_calibration/CIFAR10/densenet121_cross_entropy_smoothed_smoothing_0.05_350.model"


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A small dense network in their form below data_root, and ours of the same size under the name
    of a large one.
    """
    layers = (2, 3, 1, 2)
    network = trained(TheirDenseNet(layers=layers))
    facts = {"parameters": {CLASSES: 0}, "pretrained": False, "library": False}
    changes = {"growth": 4, "layers": layers, "registered": facts}
    small = type("Small", (SmallImageDenseNet,), changes)
    monkeypatch.setattr("calgrid.backbones.load", lambda *_: small)
    monkeypatch.setattr("calgrid.jobs.published.describe", lambda *_: SimpleNamespace(info=facts))
    (tmp_path / PLACE).parent.mkdir(parents=True)
    torch.save(network.state_dict(), tmp_path / PLACE)
    return network


def test_a_published_checkpoint_is_taken_recorded_and_verified(
    checkpoint, monkeypatch, tmp_path, refuses
):
    grid = dict(
        zip(
            ("datasets", "backbones", "methods", "seeds"),
            ([each] for each in CIFAR[1:]),
            strict=True,
        )
    )
    config = {
        "study": "s",
        "data_root": str(tmp_path),
        "grids": [{"protocol": "focal_calibration", **grid}],
    }
    plan, data = Plan(Study(config, HOME)), prepared(n_classes=CLASSES)
    for stage in ("published", "predict"):
        monkeypatch.setattr(f"calgrid.jobs.{stage}.open_prepared", lambda *_, **__: data)
    run, spec = tmp_path / "run", plan.train(CIFAR).spec
    take_weights(spec, tmp_path, run, tmp_path)
    digest = hashlib.sha256((tmp_path / PLACE).read_bytes()).hexdigest()
    assert (tmp_path / f"{PLACE}.sha256").read_text().startswith(digest)
    weights = json.loads((run / "train.json").read_text())["weights"]
    assert weights == {
        "source": "focal_calibration",
        "url": f"https://www.robots.ox.ac.uk/~viveka/{PLACE}",
        "path": PLACE,
        "size": (tmp_path / PLACE).stat().st_size,
        "sha256": digest,
        "verified_by": "the checksum of its first use here; none is published",
    }
    out = tmp_path / "predict"
    predict(plan.predict(CIFAR).spec, run / "model.safetensors", tmp_path, out)
    images = (torch.tensor(data.splits["test"].images).float() / 255 - 0.5) / 0.25
    logits = read_logits(out / "logits/last/test.parquet").logits
    np.testing.assert_allclose(logits, checkpoint(images).detach().numpy(), rtol=1e-4, atol=1e-4)

    torch.save(TheirDenseNet(layers=(1, 1, 1, 1)).state_dict(), tmp_path / PLACE)
    with refuses(DataError, "has changed since its first use", f"instead of {digest}"):
        take_weights(spec, tmp_path, tmp_path / "again", tmp_path)


# the user's own files


@pytest.fixture
def own(tmp_path):
    """The plan of a residual network of timm with the weights of a file, and their network."""
    torch.manual_seed(3)
    network = timm.create_model("resnet10t", num_classes=CLASSES)

    def make(file, **options):
        grid = {"protocol": "own", "datasets": ["digits"], "backbones": ["timm/resnet10t"]}
        grid |= {"methods": ["ce"], "seeds": [1], **options}
        protocols = {"own": {"base": "published", "weights": "file", "weights_file": file}}
        config = {"study": "s", "protocols": protocols, "grids": [grid]}
        return Plan(Study({**config, "data_root": str(tmp_path)}, HOME))

    return network.eval(), make


OWN = RunKey("own", "digits", "timm/resnet10t", "ce", 1)


def inside(state, start):
    return {f"{start}{name}": tensor for name, tensor in state.items()}


FORMS = {
    "plain": lambda state, _: state,
    "wrapped": lambda state, _: {"epoch": 3, "state_dict": inside(state, "module.")},
    "compiled": lambda state, _: inside(state, "_orig_mod.module."),
    "lightning": lambda state, _: {"state_dict": inside(state, "model._orig_mod."), "epoch": 1},
    "other key": lambda state, _: {"net": state, "acc": 91.2},
    # averaged weights beside those of the last step, as timm and torchvision's references write
    "timm": lambda state, raw: {"state_dict": raw, "state_dict_ema": state, "epoch": 1},
    "torchvision": lambda state, raw: {
        "model": raw,
        "model_ema": {"n_averaged": torch.tensor(5), **inside(state, "module.")},
        "optimizer": {"state": {0: {"step": torch.tensor(1.0)}}, "param_groups": []},
    },
    "safetensors": lambda state, _: state,
}


@pytest.mark.parametrize("form", FORMS)
def test_a_file_under_their_names_holds_their_network(own, form, tmp_path, capsys):
    network, _ = own
    state = network.state_dict()
    path = tmp_path / ("net.safetensors" if form == "safetensors" else "net.pth")
    raw = {key: torch.zeros_like(tensor) for key, tensor in state.items()}
    write = save_file if form == "safetensors" else torch.save
    write(FORMS[form](state, raw), path)
    found = build_backbone("timm/resnet10t", CLASSES)
    load_state(found, read_state(path), path)
    images = torch.rand(2, 3, 64, 64)
    torch.testing.assert_close(found.eval()(images), network(images))
    said = {"timm": "state_dict_ema, state_dict", "torchvision": "model_ema, model"}
    expected = f"{path.name} holds the networks {said.get(form)}: '"
    expected += f"{said.get(form, '').split(',')[0]}'"
    assert (expected in capsys.readouterr().err) == (form in said)


def test_a_run_with_the_weights_of_a_file_gives_the_logits_of_their_network(
    own, tmp_path, monkeypatch
):
    network, make = own
    torch.save(network.state_dict(), tmp_path / "ce-1.pth")
    plan, data = make("{method}-{seed}.pth"), prepared(side=64, n_classes=CLASSES)
    for stage in ("published", "predict"):
        monkeypatch.setattr(f"calgrid.jobs.{stage}.open_prepared", lambda *_, **__: data)
    run, out = tmp_path / "run", tmp_path / "predict"
    take_weights(plan.train(OWN).spec, tmp_path, run, tmp_path)
    record = json.loads((run / "train.json").read_text())
    digest = hashlib.sha256((tmp_path / "ce-1.pth").read_bytes()).hexdigest()
    assert record["weights"]["sha256"] == digest
    assert _origin(record) == "your own weights, ce-1.pth"
    predict(plan.predict(OWN).spec, run / "model.safetensors", tmp_path, out)
    images = (torch.tensor(data.splits["test"].images).float() / 255 - 0.5) / 0.25
    logits = read_logits(out / "logits/last/test.parquet").logits
    np.testing.assert_allclose(logits, network(images).detach().numpy(), rtol=1e-4, atol=1e-4)


def test_a_key_chooses_among_the_networks_of_a_file(tmp_path, refuses):
    path, one, two = tmp_path / "n.pt", {"w": torch.ones(1)}, {"w": torch.zeros(1)}
    torch.save({"state_dict": one, "state_dict_ema": two}, path)
    assert read_state(path, "state_dict") == one
    with refuses(
        DataError, "holds the networks state_dict, state_dict_ema; name one", "weights_key"
    ):
        read_state(path, "model")
    torch.save({"netA": one, "netB": two}, path)
    with refuses(DataError, "n.pt holds the networks netA, netB; name one of them as weights_key"):
        read_state(path)
    torch.save({"state_dict": {**one, "epoch": 3}}, path)
    with refuses(DataError, "n.pt cannot be read ('epoch' is no tensor)"):
        read_state(path)


def test_the_network_of_a_run_of_calgrid_is_read(tmp_path):
    last, best = build_backbone("resnet8", CLASSES), build_backbone("resnet8", CLASSES)
    states = {"last.model": last.state_dict(), "best.model": best.state_dict()}
    path = tmp_path / "model.safetensors"
    save_checkpoint(path, {**states, "last.procedure": {"n": torch.ones(1)}}, {})
    for key, theirs in ((None, last), ("best.model", best)):
        found = build_backbone("resnet8", CLASSES)
        load_state(found, read_state(path, key), path)
        assert torch.equal(found.head.weight, theirs.head.weight)


def test_a_changed_foreign_or_unreadable_file_of_weights_is_refused(
    own, tmp_path, monkeypatch, refuses
):
    network, make = own
    data = prepared(side=64, n_classes=CLASSES)
    monkeypatch.setattr("calgrid.jobs.published.open_prepared", lambda *_, **__: data)

    def take(plan):
        job = plan.train(OWN)
        call = Call.planned(plan.file(), "train", Path(job.folder))
        published.run(replace(call, out=tmp_path / "run", reads=(tmp_path / MANIFEST,)))

    path = tmp_path / "net.pt"
    torch.save(network.state_dict(), path)
    plan = make("net.pt")
    plan.train(OWN)
    torch.save(timm.create_model("resnet10t", num_classes=CLASSES + 1).state_dict(), path)
    with refuses(StateError, "net.pt was changed after the study was planned; run again"):
        take(plan)
    with refuses(DataError, str(path), "another network than the run's", "size mismatch"):
        take(make("net.pt"))
    path.write_bytes(b"something else")
    with refuses(DataError, f"The weights in {path} cannot be read", "state dictionary"):
        take(make("net.pt"))
    assert not (tmp_path / "run" / "model.safetensors").exists()


def test_a_file_that_names_its_outputs_must_have_the_classes_of_the_data_set(
    own, tmp_path, monkeypatch, refuses
):
    network, make = own
    data = prepared(side=64, n_classes=CLASSES)
    monkeypatch.setattr("calgrid.jobs.published.open_prepared", lambda *_, **__: data)
    names = [f"class {number}" for number in range(CLASSES)]
    data.manifest["classes"] = names
    torch.save({**network.state_dict(), "classes": names[::-1]}, tmp_path / "net.pt")
    spec = make("net.pt").train(OWN).spec
    with refuses(DataError, "net.pt has the classes of 'imagenet' in another order"):
        take_weights(spec, tmp_path, tmp_path / "run", tmp_path)
    data.manifest["classes"] = names[::-1]
    take_weights(spec, tmp_path, tmp_path / "run", tmp_path)
    states, _ = load_checkpoint(tmp_path / "run/model.safetensors", spec["fingerprint"])
    assert states["last.model"]


def test_weights_of_another_network_are_refused_before_any_job(own, tmp_path, refuses):
    _, make = own
    for n_classes in (10, 11):
        state = timm.create_model("resnet10t", num_classes=n_classes).state_dict()
        torch.save({"state_dict": state}, tmp_path / f"{n_classes}.pt")
    check_weights(make("10.pt").study)
    with refuses(ConfigError, "protocol 'own': ", "11.pt is that of another", "size mismatch"):
        check_weights(make("11.pt").study)
