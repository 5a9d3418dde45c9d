"""Files, optimiser and network that calibrators share."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import save_file
from torch import nn

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.calibrators._network import MLP, minimise
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


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.unlink(), "fitted does not exist; fit one"),
        (lambda path: path.write_bytes(path.read_bytes()[:-4]), "is damaged"),
        (lambda path: save_file({"weight": np.zeros(3)}, path), "calgrid did not write it"),
    ],
)
def test_a_missing_damaged_or_other_file_is_refused(problem, tmp_path, damage, said):
    path = tmp_path / "fitted"
    problem.fit("ts").save(path)
    damage(path)
    with pytest.raises(StateError, match=said):
        load_calibrator(path)


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
    whole = {"id": "ts", "hyperparameters": {}, "n_classes": 5, "n_samples": 20, "kind": "logits"}
    whole |= {"binary": False, "class_names": None, "feature_width": None, "fit_history": {}}
    write_arrays(tmp_path / "x", {"beta": np.ones(1), "unit": np.ones(1)}, whole)
    assert load_calibrator(tmp_path / "x").n_classes == 5
    write_arrays(tmp_path / "x", dict.fromkeys(arrays, np.ones(1)), {**whole, **change})
    with pytest.raises(StateError, match=r"does not fit this version .* fit and save it again"):
        load_calibrator(tmp_path / "x")


def bowl(parameters):
    return float(parameters @ parameters), 2.0 * parameters


def test_minimise_stops_after_patience_epochs_without_a_real_decrease():
    options = {"max_epochs": 99, "patience": 7}
    _, flat = minimise(
        lambda p: (1.0, 0.0 * p), np.ones(1), learning_rate=1.0, min_delta=0.0, **options
    )
    _, small = minimise(bowl, np.ones(1), learning_rate=1e-6, min_delta=1e-2, **options)
    assert flat["epochs"] == small["epochs"] == 1 + 7
    # decreases too small to wait for still count as the best
    assert small["best_epoch"] == 7


def test_initial_weights_fill_the_range_of_a_linear_layer():
    drawn = MLP((4, 1000, 1)).initial(np.random.default_rng(0))
    first, last = drawn[:5000], drawn[5000:]
    bounds = [layer.weight.abs().max().item() for layer in (nn.Linear(4, 1000), nn.Linear(1000, 1))]
    for weights, bound, fan_in in zip((first, last), bounds, (4, 1000), strict=True):
        assert np.abs(weights).max() == pytest.approx(1 / np.sqrt(fan_in), rel=0.01)
        assert np.abs(weights).max() == pytest.approx(bound, rel=0.02)


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
    calibrator = build_calibrator("smart")
    del calibrator.hidden_layers
    message = r"'smart': .*no attribute 'hidden_layers'; its __init__ must keep"
    with pytest.raises(ConfigError, match=message):
        repr(calibrator)
