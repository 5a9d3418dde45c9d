"""Maps as PyTorch modules: equal to NumPy, also traced, exported and in ONNX."""

from functools import cache

import numpy as np
import pytest
import torch
from torch import nn

from calgrid import CalibratedModule
from calgrid.calibrators import build_calibrator
from calgrid.components import registry
from calgrid.errors import ConfigError, DataError

#: calibrators of logits alone, all of which are tensor operations
IDS = [
    id
    for id, spec in registry.descriptions("calibrator").items()
    if spec.info["needs"] == ("logits",)
]
#: options of fits that take long, and further forms of maps
OPTIONS = {"pts_paper": {"steps": 50}, "pts": {"max_epochs": 50}, "smart": {"max_epochs": 50}}
FORMS = [
    *((id, OPTIONS.get(id, {})) for id in IDS),
    ("ts", {"objective": "brier"}),
    ("hb_ova", {"spacing": "quantile"}),
    *(
        ("smart", {"indicator": indicator, "max_epochs": 20, "clamp_margin": True})
        for indicator in ("entropy", "confidence", "max_minus_mean", "all_logits")
    ),
]


CLASSES = 12
GOOD = np.linspace(-2.0, 3.0, CLASSES)


def with_value(value, row=GOOD):
    """Rows with one value in the place of each number in turn."""
    rows = np.tile(row, (len(row), 1))
    np.fill_diagonal(rows, value)
    return rows


BAD = np.vstack(
    [
        with_value(np.nan),
        with_value(np.inf),
        *(np.full((1, CLASSES), value) for value in (np.nan, np.inf, -np.inf)),
    ]
)


def drawn(seed, rows, classes=12):
    """Logits with impossible classes and ties, and labels of 11 of 12 classes."""
    generator = np.random.default_rng(seed)
    logits = 4 * generator.normal(size=(rows, classes))
    labels = (logits / 3 + generator.gumbel(size=logits.shape))[:, :-1].argmax(axis=1)
    logits[::7, 3] = -np.inf
    logits[5] = 0.0
    logits[6, 1:] = -np.inf
    logits[8] *= 100
    return logits, labels


@cache
def fitted(form):
    """Calibrator of one of the forms, or of an id with its options; tests only read it."""
    id, options = FORMS[IDS.index(form) if isinstance(form, str) else form]
    return build_calibrator(id, **options).fit(*drawn(0, 400))


@pytest.mark.parametrize("form", range(len(FORMS)), ids=[id for id, _ in FORMS])
def test_modules_equal_numpy_and_can_be_traced(form):
    """Bad rows are NaN, and the others as without them."""
    calibrator = fitted(form)
    logits, _ = drawn(1, 300)
    expected = np.vstack([calibrator.predict_proba(logits), np.full(BAD.shape, np.nan)])
    module = calibrator.module()
    values = torch.tensor(np.vstack([logits, BAD]))
    for each in (module, torch.jit.trace(module, values[:5])):
        np.testing.assert_allclose(each(values).numpy(), expected, atol=1e-6)
    assert calibrator._state().keys() <= {name[7:] for name in module.state_dict()}


@pytest.mark.parametrize("id", [id for id in IDS if id.endswith(("hb", "bbq", "iso", "_ova"))])
def test_modules_equal_numpy_at_the_scores_of_the_fit(id):
    logits, labels = drawn(0, 400)
    rounded = logits.round()
    calibrator = build_calibrator(id).fit(rounded, labels)
    found = calibrator.module()(torch.tensor(rounded)).numpy()
    np.testing.assert_allclose(found, calibrator.predict_proba(rounded), atol=1e-6)


@pytest.mark.parametrize("id", ["smart", "iso_ova"])
def test_traced_and_exported_networks_calibrate_other_rows(id):
    calibrator = fitted(id)
    network = CalibratedModule(nn.Linear(12, 12), calibrator)
    first, other = torch.randn(4, 12), 3 * torch.randn(9, 12)
    expected = calibrator.predict_proba(network.model(other).detach())
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(network, (first,), dynamic_shapes=(({0: batch},),))
    compiled = torch.compile(network, backend="eager", fullgraph=True)
    for recorded in (torch.jit.trace(network, first), exported.module(), compiled):
        np.testing.assert_allclose(recorded(other).detach().numpy(), expected, atol=1e-6)


def test_buffers_stay_in_float64_and_numbers_of_one_column_are_of_class_1():
    half = CalibratedModule(nn.Linear(12, 12), fitted("vs")).to(torch.bfloat16)
    assert {tensor.dtype for tensor in half.calibration.buffers()} == {torch.float64}
    whole = torch.arange(24).reshape(2, 12)
    expected = fitted("vs").predict_proba(whole.numpy())
    np.testing.assert_allclose(half.calibration(whole).numpy(), expected, atol=1e-6)
    with pytest.raises(ValueError, match="another number of classes"):
        half.calibration(whole.reshape(4, 6))
    shares, uniform = np.random.default_rng(0).uniform(size=(2, 200))
    labels = uniform < shares**2
    calibrator = build_calibrator("ts").fit(shares, labels.astype(int), kind="probabilities")
    found = calibrator.module()(torch.tensor(shares))
    np.testing.assert_allclose(found.numpy(), calibrator.predict_proba(shares), atol=1e-6)
    two = torch.tensor(np.column_stack([1 - shares, shares]))
    with pytest.raises(ValueError, match="fitted on one column"):
        calibrator.module()(two)


def test_maps_that_need_more_than_logits_are_refused_while_pytorch_records(refuses):
    logits, labels = drawn(0, 100)
    features = np.random.default_rng(0).normal(size=(100, 12))
    calibrator = build_calibrator("procal_dr").fit(logits, labels, features)
    with refuses(ConfigError, "'procal_dr' has no module, because it needs features"):
        calibrator.module()

    class Both(nn.Module):
        def forward(self, values):
            return values, values

    network = CalibratedModule(Both(), calibrator)
    with refuses(ConfigError, "has no module", "store its output as a constant"):
        torch.jit.trace(network, torch.tensor(features))

    class OfNumPy(type(build_calibrator("ts"))):
        def _scores(self, logits, features):
            return np.asarray(logits) * 2.0

    with refuses(ConfigError, "has no module, because its _transform takes no tensors"):
        OfNumPy().fit(logits, labels).module()
    largest = build_calibrator("smart", indicator="max_logit", max_epochs=5).fit(logits, labels)
    with refuses(ConfigError, "with these options it needs more than differences of logits"):
        largest.module()


def test_a_network_that_returns_something_else_is_refused(refuses):
    calibrator = fitted("ts")
    with refuses(DataError, "shape (2, 3), but the calibrator was fitted on 12 classes"):
        CalibratedModule(nn.Identity(), calibrator)(torch.zeros(2, 3))
    with refuses(DataError, "returns probabilities", "remove its softmax"):
        CalibratedModule(nn.Softmax(1), calibrator)(torch.randn(2, 12))


def test_a_network_that_returns_logits_in_the_place_of_probabilities_is_refused(refuses):
    logits, labels = drawn(0, 100)
    shares = torch.tensor(logits).softmax(1)
    calibrator = build_calibrator("ts").fit(shares, labels, kind="probabilities")
    found = CalibratedModule(nn.Identity(), calibrator)(shares)
    np.testing.assert_allclose(found.numpy(), calibrator.predict_proba(shares), atol=1e-6)
    for other in (torch.tensor(logits[20:25]), shares / 2):
        with refuses(DataError, "outside [0, 1] or rows that do not sum to 1", "softmax of the"):
            CalibratedModule(nn.Identity(), calibrator)(other)


def test_a_network_of_another_kind_than_one_logit_is_refused(refuses):
    logits = np.random.default_rng(0).normal(scale=3, size=200)
    calibrator = build_calibrator("ts").fit(logits, (logits > 1).astype(int))
    network = CalibratedModule(nn.Identity(), calibrator)
    expected = calibrator.predict_proba(logits)
    for shape in ((200,), (200, 1)):
        found = network(torch.tensor(logits).reshape(shape))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-6)
    with refuses(DataError, "shape (100, 2), but the calibrator was fitted on one column"):
        network(torch.tensor(logits).reshape(100, 2))
    with refuses(DataError, "returns probabilities"):
        network(torch.tensor(logits).sigmoid())
