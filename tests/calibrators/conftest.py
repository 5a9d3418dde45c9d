"""Overconfident logits that come from features through a linear head, as a classifier's do."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import softmax

N_FEATURES = 8


@dataclass(frozen=True)
class Problem:
    """Logits ``(N, K)`` with labels, and the features and head they come from; a calibrator that
    writes to one of them raises ValueError.
    """

    logits: np.ndarray
    labels: np.ndarray
    features: np.ndarray
    head: tuple[np.ndarray, np.ndarray]

    def __post_init__(self):
        for given in (self.logits, self.labels, self.features, *self.head):
            given.flags.writeable = False

    def fit(self, id, **overrides):
        return build_calibrator(id, **overrides).fit(
            self.logits, self.labels, self.features, self.head
        )

    def predict(self, calibrator):
        return calibrator.predict_proba(self.logits, self.features)

    def replace(self, logits=None, labels=None, head=None):
        given = {"logits": logits, "labels": labels, "head": head}
        return replace(self, **{name: value for name, value in given.items() if value is not None})

    def rows(self, index):
        return Problem(self.logits[index], self.labels[index], self.features[index], self.head)


def make_problem(n_samples, n_classes=5, temperature=2.0, seed=0):
    """Draw logits of which ``softmax(logits / temperature)`` is the distribution of the labels."""
    generator = np.random.default_rng(seed)
    weight = generator.normal(size=(n_classes, N_FEATURES))
    bias = 0.1 * generator.normal(size=n_classes)
    features = np.abs(generator.normal(size=(n_samples, N_FEATURES)))
    logits = features @ weight.T + bias
    true = softmax((logits - logits.max(axis=1, keepdims=True)) / temperature)
    labels = (true.cumsum(axis=1) < generator.uniform(size=(n_samples, 1))).sum(axis=1)
    return Problem(logits, np.minimum(labels, n_classes - 1), features, (weight, bias))


@pytest.fixture(scope="session")
def make():
    return make_problem


@pytest.fixture(scope="session")
def problem():
    return make_problem(900).rows(slice(600))


@pytest.fixture(scope="session")
def held_out():
    """Samples of the same model that ``problem`` does not hold."""
    return make_problem(900).rows(slice(600, 900))


@pytest.fixture(scope="session")
def torch_network():
    """A function that builds an MLP with given weights in PyTorch, in double precision."""
    import torch

    def build(network, parameters):
        layers = []
        for weight, bias in network.layers(parameters):
            layer = torch.nn.Linear(*weight.T.shape, dtype=torch.float64)
            layer.weight.data, layer.bias.data = torch.tensor(weight), torch.tensor(bias[:, 0])
            layers += [layer, torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    return build
