"""A network and its calibrator as one module."""

import numpy as np
import pytest
import torch
from torch import nn

from calgrid import CalibratedModule
from calgrid.calibrators import build_calibrator
from calgrid.errors import DataError, StateError


class Classifier(nn.Module):
    """Logits of rows (N, 4), and features where they are asked for."""

    def __init__(self, features=False):
        super().__init__()
        self.hidden, self.head, self.features = nn.Linear(4, 5), nn.Linear(5, 3), features

    def forward(self, x):
        features = nn.functional.dropout(self.hidden(x).relu(), training=self.training)
        return (self.head(features), features) if self.features else self.head(features)


@pytest.fixture
def rows():
    torch.manual_seed(0)
    return torch.randn(90, 4)


@pytest.mark.parametrize("id", ["ts", "fc", "procal_dr"])
def test_outputs_are_those_of_the_calibrator(id, rows):
    model = Classifier(features=True).eval()
    with torch.no_grad():
        logits, features = model(rows)
    head = model.head.weight.detach(), model.head.bias.detach()
    calibrator = build_calibrator(id).fit(logits, np.arange(90) % 3, features, head)
    calibrated = CalibratedModule(model.train(), calibrator)
    found = calibrated(rows)
    expected = calibrator.predict_proba(logits, features)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    assert not found.requires_grad


def test_half_precision_stays_and_dropout_is_off(rows):
    model = Classifier().to(torch.bfloat16)
    with torch.no_grad():
        logits = model.eval()(rows.bfloat16())
    calibrator = build_calibrator("ts").fit(logits.double(), np.arange(90) % 3)
    found = CalibratedModule(model.train(), calibrator)(rows.bfloat16())
    assert found.dtype == torch.bfloat16
    expected = torch.from_numpy(calibrator.predict_proba(logits.double())).bfloat16()
    assert torch.equal(found, expected)


def test_a_calibrator_that_is_not_fitted_is_refused(refuses):
    with refuses(StateError, "'ts' is not fitted"):
        CalibratedModule(Classifier(), build_calibrator("ts"))


def test_a_calibrator_of_another_order_of_classes_is_refused(rows, refuses):
    model = Classifier().eval()
    with torch.no_grad():
        logits = model(rows)
    names = ["ant", "bee", "cat"]
    calibrator = build_calibrator("ts").fit(logits, np.arange(90) % 3, class_names=names)
    model.classes = names[::-1]
    with refuses(DataError, "The model has the classes cat, bee, ant, but the calibrator was"):
        CalibratedModule(model, calibrator)
    model.classes = names
    assert CalibratedModule(model, calibrator)(rows).shape == (90, 3)
