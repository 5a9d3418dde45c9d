"""Files, optimiser and network that calibrators share."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.calibrators._network import MLP, Adam, minimise
from calgrid.calibrators._probabilities import inverse_softplus, sigmoid, softplus
from calgrid.calibrators._validation import check_features, check_head
from calgrid.errors import ConfigError, DataError, StateError
from calgrid.storage.arrays import write_arrays


def test_the_file_describes_the_calibrator(problem, tmp_path):
    problem.fit("smart", seed=3, max_epochs=5).save(tmp_path / "x")
    with safe_open(tmp_path / "x", framework="np") as stream:
        description = json.loads(stream.metadata()["calgrid"])
    assert description["id"] == "smart"
    assert description["seed"] == description["hyperparameters"]["seed"] == 3
    assert description["n_classes"] == 5
    assert description["fit_history"]["epochs"] == 5
    assert "loss" not in description["fit_history"]


@pytest.fixture
def saved(problem, tmp_path):
    path = tmp_path / "fitted"
    problem.fit("ts").save(path)
    return path


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(StateError, match="nowhere does not exist; fit one"):
        load_calibrator(tmp_path / "nowhere")


def test_a_truncated_file_is_called_damaged(saved):
    saved.write_bytes(saved.read_bytes()[:-4])
    with pytest.raises(StateError, match="is damaged"):
        load_calibrator(saved)


def test_a_safetensors_file_of_another_kind_is_refused(tmp_path):
    save_file({"weight": np.zeros(3)}, tmp_path / "model")
    with pytest.raises(StateError, match="calgrid did not write it"):
        load_calibrator(tmp_path / "model")


@pytest.mark.parametrize(
    ("arrays", "change"),
    [
        ({"beta", "unit"}, {"id": "gone"}),
        ({"beta", "unit"}, {"hyperparameters": {"gone": 1}}),
        ({"beta", "unit"}, {"n_classes": "many"}),
        ({"beta", "unit"}, {"fit_history": None}),
        (set(), {}),
    ],
)
def test_a_file_of_another_version_is_refused(tmp_path, arrays, change):
    whole = {
        "id": "ts",
        "hyperparameters": {},
        "n_classes": 5,
        "n_samples": 20,
        "kind": "logits",
        "binary": False,
        "class_names": None,
        "feature_width": None,
        "fit_history": {},
    }
    write_arrays(tmp_path / "x", {"beta": np.ones(1), "unit": np.ones(1)}, whole)
    assert load_calibrator(tmp_path / "x").n_classes == 5
    write_arrays(tmp_path / "x", dict.fromkeys(arrays, np.ones(1)), {**whole, **change})
    with pytest.raises(StateError, match=r"does not fit this version .* fit and save it again"):
        load_calibrator(tmp_path / "x")


def test_saving_twice_replaces_the_file(problem, saved):
    build_calibrator("none").fit(problem.logits, problem.labels).save(saved)
    assert load_calibrator(saved).id == "none"


def test_adam_takes_the_steps_of_the_reference_implementation():
    generator = np.random.default_rng(0)
    start, gradients = generator.normal(size=7), generator.normal(size=(40, 7))
    ours, adam = start.copy(), Adam(7, learning_rate=0.05)
    theirs = torch.tensor(start, requires_grad=True)
    reference = torch.optim.Adam([theirs], lr=0.05)
    for gradient in gradients:
        adam.step(ours, gradient)
        theirs.grad = torch.tensor(gradient)
        reference.step()
    np.testing.assert_allclose(ours, theirs.detach().numpy(), rtol=1e-12)


def bowl(parameters):
    return float(parameters @ parameters), 2.0 * parameters


def test_minimise_finds_the_minimum_and_leaves_the_start_alone():
    start = np.array([1.0, -2.0])
    found, _ = minimise(
        bowl, start, learning_rate=0.05, max_epochs=2000, patience=500, min_delta=0.0
    )
    np.testing.assert_allclose(found, 0.0, atol=1e-6)
    np.testing.assert_array_equal(start, [1.0, -2.0])


def test_minimise_stops_after_patience_epochs_without_a_real_decrease():
    options = {"max_epochs": 99, "patience": 7}
    _, flat = minimise(
        lambda p: (1.0, 0.0 * p), np.ones(1), learning_rate=1.0, min_delta=0.0, **options
    )
    _, small = minimise(bowl, np.ones(1), learning_rate=1e-6, min_delta=1e-2, **options)
    assert flat["epochs"] == small["epochs"] == 1 + 7
    # decreases too small to wait for still count as the best
    assert small["best_epoch"] == 7


def test_minimise_returns_the_lowest_loss_not_the_last():
    found, history = minimise(
        bowl, np.array([0.1]), learning_rate=0.15, max_epochs=3, patience=9, min_delta=0.0
    )
    assert bowl(found)[0] == history["best_loss"] == min(history["loss"]) < history["loss"][-1]


@pytest.mark.parametrize("sizes", [(1, 16, 1), (3, 5, 5, 1), (4, 1)])
def test_the_network_and_its_gradient_are_those_of_automatic_differentiation(torch_network, sizes):
    generator = np.random.default_rng(1)
    network = MLP(sizes)
    parameters, inputs = network.initial(generator), generator.normal(size=(sizes[0], 50))
    d_output = generator.normal(size=50)
    model = torch_network(network, parameters)
    expected = model(torch.tensor(inputs.T))[:, 0]
    expected.backward(torch.tensor(d_output))
    output, kept = network.forward(parameters, inputs)
    np.testing.assert_allclose(output, expected.detach().numpy(), rtol=1e-12)
    flat = torch.cat([parameter.grad.ravel() for parameter in model.parameters()])
    np.testing.assert_allclose(
        network.gradient(parameters, kept, d_output), flat.numpy(), rtol=1e-8, atol=1e-12
    )


def test_initial_weights_fill_the_range_of_a_linear_layer():
    drawn = MLP((4, 1000, 1)).initial(np.random.default_rng(0))
    first, last = drawn[:5000], drawn[5000:]
    bounds = [layer.weight.abs().max().item() for layer in (nn.Linear(4, 1000), nn.Linear(1000, 1))]
    for weights, bound, fan_in in zip((first, last), bounds, (4, 1000), strict=True):
        assert np.abs(weights).max() == pytest.approx(1 / np.sqrt(fan_in), rel=0.01)
        assert np.abs(weights).max() == pytest.approx(bound, rel=0.02)


def test_softplus_and_sigmoid_are_exact_without_overflow():
    x = np.array([-1e4, -30.0, -1.0, 0.0, 2.0, 30.0, 1e4])
    tensor = torch.tensor(x)
    np.testing.assert_allclose(
        softplus(x), torch.logaddexp(tensor, torch.zeros(7, dtype=torch.float64)), rtol=1e-14
    )
    np.testing.assert_allclose(sigmoid(x), torch.sigmoid(tensor), rtol=1e-14)
    for value in (1e-3, 0.5, 3.0, 80.0):
        assert softplus(np.array(inverse_softplus(value))) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("check", "given", "message"),
    [
        (check_features, (np.zeros(3), 3), r"\(3, d\)"),
        (check_features, (np.zeros((2, 4)), 3), r"\(3, d\)"),
        (check_features, (np.full((3, 4), np.nan), 3), "NaN or infinite"),
        (check_features, (np.zeros((3, 4)), 3, 5), "width 4, but the calibrator was fitted on 5"),
        (check_head, (np.zeros((5, 4)), 5, 4), r"the pair \(weight, bias\)"),
        (check_head, ((np.zeros((4, 5)), np.zeros(5)), 5, 4), r"weight \(5, 4\) and bias \(5,\)"),
        (check_head, ((np.full((5, 4), np.inf), np.zeros(5)), 5, 4), "NaN or infinite"),
    ],
)
def test_features_and_heads_that_do_not_match_are_refused(check, given, message):
    with pytest.raises(DataError, match=message):
        check(*given)


def test_an_option_that_is_no_attribute_is_named():
    calibrator = build_calibrator("hb", n_bins=5)
    del calibrator.n_bins
    with pytest.raises(ConfigError, match=r"'hb': .*no attribute 'n_bins'; its __init__ must keep"):
        repr(calibrator)
