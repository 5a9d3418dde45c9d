"""Stages with backbones of other kinds: a model of a library from end to end, published weights,
wrong sizes.
"""

import copy

import pytest
import timm
import torch
from tests.jobs.small import HOME, key, predicted, small_study, train, trained

from calgrid.errors import ConfigError
from calgrid.plan.plan import Plan
from calgrid.storage.checkpoint import load_checkpoint
from calgrid.storage.logits import read_logits
from calgrid.study.study import Study

NAME = "timm/test_resnet"


@pytest.fixture(scope="module")
def tuned():
    """One epoch of fine-tuning so slow that the published weights are what comes out."""
    config = copy.deepcopy(small_study())
    config["protocols"]["quick"] |= {
        "epochs": 1,
        "pretrained": True,
        "checkpoints": ["last"],
        "export_features": True,
        "optimizer": {"name": "sgd", "lr": 1e-12},
        "schedule": {"name": "constant", "milestones": []},
    }
    config["grids"][0] |= {
        "backbones": [NAME],
        "methods": ["ce", "tst"],
        "calibrators": ["none"],
        "shifts": [],
    }
    return Plan(Study(config, HOME))


def run(method):
    return key(method)._replace(backbone=NAME)


@pytest.fixture
def published(monkeypatch):
    """Weights that timm would load, and how often it was asked for them."""
    create, asked = timm.create_model, []

    def load(name, pretrained=False, **options):
        asked.append(pretrained)
        model = create(name, **options)
        if pretrained:
            torch.nn.init.constant_(model.conv1[0].weight, 0.125)
        return model

    monkeypatch.setattr(timm, "create_model", load)
    return asked


def test_a_models_run_starts_from_published_weights_and_is_predicted_from_its_own(
    tuned, data, tmp_path, published
):
    first, second = tmp_path / "ce", tmp_path / "tst"
    weights = trained(tuned, data, first, run("ce"))
    assert published == [True]
    states, _ = load_checkpoint(weights, tuned.train(run("ce")).fingerprint)
    stem = states["last.model"]["stages.0.model.conv1.0.weight"]
    torch.testing.assert_close(stem, torch.full_like(stem, 0.125))

    predicted(tuned, data, first, run("ce"))
    logits = read_logits(first / "predict/logits/last/test.parquet")
    head = states["last.model"]
    expected = logits.features @ head["head.weight"].numpy().T + head["head.bias"].numpy()
    assert logits.features.shape[1] == timm.create_model("test_resnet").num_features
    assert abs(logits.logits - expected).max() < 1e-4

    tst = trained(tuned, data, second, run("tst"), first_stage=weights)
    body, _ = load_checkpoint(tst, tuned.train(run("tst")).fingerprint)
    assert torch.equal(body["last.model"]["body.stages.0.model.conv1.0.weight"], stem)
    assert published == [
        True,
        False,
        False,
        False,
    ]  # its own first weights only: predict, the question above, tst


def test_images_of_a_wrong_size_are_refused_before_the_first_step(plan, data, tmp_path, refuses):
    """Where a configuration does not tell their size, planning could not know."""
    spec = copy.deepcopy(dict(plan.train(key("ce")).spec))
    spec["key"]["backbone"] = "resnet50_tiny"
    parts = [
        "data set 'digits': backbone 'resnet50_tiny' takes images of 64x64 pixels only",
        "these have 8x8",
    ]
    with refuses(ConfigError, *parts):
        train(spec, data / "digits", tmp_path / "run")
    assert not (tmp_path / "run" / "model.safetensors").exists()
