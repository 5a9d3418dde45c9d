"""The minimal component that the docstring of each package shows works as it stands."""

import ast
import importlib
import textwrap

import numpy as np
import pytest
import torch

from calgrid import metrics, registry
from calgrid.training.data import Batch


class Subject:
    """As much of a probed network as the example asks for."""

    labels = np.array([0, 1])

    class outputs:  # noqa: N801
        features = np.eye(2)


def use_loss(cls):
    loss = cls(3)
    assert loss(torch.randn(4, 3), torch.tensor([0, 1, 2, 0])).shape == ()


def use_procedure(cls):
    model = torch.nn.Module()
    model.features, model.head = torch.nn.Flatten(), torch.nn.Linear(12, 3)
    batch = Batch(torch.randn(4, 3, 2, 2), torch.tensor([0, 1, 2, 0]), torch.arange(4))
    logits, total = cls().forward_loss(model, lambda z, y, features, index: z.logsumexp(1).mean(), batch)
    assert (logits.shape, total.shape) == ((4, 3), ())


def use_calibrator(cls):
    logits, labels = np.random.default_rng(1).normal(size=(50, 3)), np.arange(50) % 3
    calibrator = cls()
    calibrator.n_classes, _ = 3, calibrator._fit(logits, labels, None, None)
    assert np.allclose(calibrator.predict_proba(logits).sum(axis=1), 1)


def use_dataset(cls):
    splits = cls().build(None)
    assert {name: len(split) for name, split in splits.items()} == cls.registered["sizes"]


def use_backbone(cls):
    network = cls(10)
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 10)
    assert {10: sum(p.numel() for p in network.parameters())} == cls.registered["parameters"]


def use_probe(cls):
    assert list(cls().measure(Subject())["norm"]) == [1, 1]


USES = {kind: globals()[f"use_{kind}"] for kind in registry.KINDS}


@pytest.mark.parametrize("kind", USES)
def test_the_example_of_a_package_is_a_component_that_works(kind, tmp_path):
    package = registry.KINDS[kind][0]
    _, _, example = importlib.import_module(f"calgrid.{package}").__doc__.rpartition("::\n")
    code = textwrap.dedent(example)
    names = {alias.name for node in ast.parse(code).body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert "register" in names
    path = tmp_path / package / "example.py"
    path.parent.mkdir()
    path.write_text(code)
    (spec,) = registry.read_file(kind, path)
    namespace = {"__name__": f"calgrid.{package}.example"}
    exec(compile(code, str(path), "exec"), namespace)
    USES[kind](namespace[spec.class_name])


def test_the_example_of_the_metrics_works():
    probabilities, labels = np.array([[0.8, 0.2], [0.3, 0.7], [0.6, 0.4]]), np.array([0, 1, 1])
    assert metrics.evaluate(probabilities, labels)["ece"] == metrics.ece(probabilities, labels, n_bins=15)
