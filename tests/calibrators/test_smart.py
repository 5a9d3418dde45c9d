"""`smart`: size and loss of the paper, exact gradients, a temperature that follows the margin."""

import numpy as np
import pytest
from scipy.optimize import check_grad

from calgrid.calibrators import build_calibrator, load_calibrator
from calgrid.calibrators._network import MLP
from calgrid.calibrators._objectives import (
    RestTable,
    build_objective,
    confidence,
    log_rest,
    margin_and_excess,
)
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators._temperature_network import T_MAX
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.smart import top_label_log_loss
from calgrid.errors import StateError
from calgrid.metrics import ece


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({}, 49),
        ({"hidden_layers": 2}, 321),
        ({"indicator": "all_logits"}, 16 * 5 + 33),
        ({"indicator": "entropy", "hidden_layers": 2}, 321),
    ],
)
def test_the_network_has_the_published_number_of_weights(problem, options, weights):
    calibrator = problem.rows(slice(50)).fit("smart", max_epochs=3, **options)
    assert calibrator.network.n_parameters == len(calibrator._parameters) == weights


@pytest.mark.parametrize("hidden_layers", [1, 2])
def test_the_gradient_of_the_whole_objective_is_that_of_finite_differences(problem, hidden_layers):
    calibrator = problem.fit("smart", hidden_layers=hidden_layers, max_epochs=3)
    logits = check_logits(problem.logits) / calibrator._scale
    charbonnier = build_objective("charbonnier", sigma=0.05, delta=1e-3, alpha=0.0)
    objective = calibrator._problem(logits, problem.labels, calibrator._inputs(logits), charbonnier)
    margin, _ = margin_and_excess(logits)
    np.testing.assert_allclose(
        objective.inputs[0], (margin - margin.mean()) / margin.std(), rtol=1e-9
    )
    parameters = MLP((1, *[16] * hidden_layers, 1)).initial(np.random.default_rng(5))
    assert check_grad(lambda x: objective(x)[0], lambda x: objective(x)[1], parameters) < 1e-6


@pytest.mark.parametrize("n_classes", [2, 5, 100])
def test_the_table_of_confidences_is_exact_to_a_few_millionths(make, n_classes):
    margin, excess = margin_and_excess(check_logits(make(300, n_classes).logits))
    table = RestTable(excess, 0.01, 10.0)
    generator = np.random.default_rng(0)
    for _ in range(20):
        beta = np.exp(generator.uniform(np.log(0.01), np.log(10.0), len(margin)))
        tabled, exact = (
            confidence(margin, beta, *rest) for rest in (table(beta), log_rest(excess, beta))
        )
        np.testing.assert_allclose(tabled[0], exact[0], rtol=0, atol=2e-6)
        np.testing.assert_allclose(tabled[1] * beta, exact[1] * beta, rtol=0, atol=2e-4)


def test_beyond_its_nodes_the_table_is_constant(make):
    _, excess = margin_and_excess(check_logits(make(50, 20).logits))
    table = RestTable(excess, 0.1, 1.0)
    for outside, edge in ((0.01, 0.1), (5.0, 1.0)):
        value, slope = table(np.full(50, outside))
        np.testing.assert_allclose(
            value, log_rest(excess, np.full(50, edge))[0], rtol=1e-12, atol=1e-12
        )
        np.testing.assert_array_equal(slope, 0.0)


def test_temperatures_stay_between_their_bounds():
    temperature, slope = build_calibrator("smart")._link(np.array([-1e4, 0.0, 1e4]))
    np.testing.assert_allclose(temperature, [0.1, np.log(2.0) + 0.1, T_MAX])
    np.testing.assert_allclose(slope, [0.0, 0.5, 0.0])


def margin_dependent(n_samples, seed):
    """Ten-class logits of which the true temperature falls from 4 to 1 as the margin grows."""
    generator = np.random.default_rng(seed)
    logits = 3.0 * generator.normal(size=(n_samples, 10))
    ordered = np.sort(logits, axis=1)
    temperature = 1.0 + 3.0 * np.exp(-(ordered[:, -1] - ordered[:, -2]))
    true = softmax((logits - ordered[:, -1:]) / temperature[:, None])
    return logits, (true.cumsum(axis=1) < generator.uniform(size=(n_samples, 1))).sum(axis=1).clip(
        max=9
    )


def test_a_temperature_that_depends_on_the_margin_is_found_where_one_for_all_fails():
    val, test = margin_dependent(4000, 0), margin_dependent(4000, 1)
    single = ece(build_calibrator("ts").fit(*val).predict_proba(test[0]), test[1])
    calibrator = build_calibrator("smart", max_epochs=300, learning_rate=0.02).fit(*val)
    assert single > 0.04
    assert ece(calibrator.predict_proba(test[0]), test[1]) < 0.02
    small, large = calibrator.temperature(np.array([0.5, 4.0]))
    assert small > large + 1.0


def test_the_order_of_the_validation_samples_does_not_matter(problem, held_out):
    order = np.random.default_rng(2).permutation(len(problem.labels))
    one, other = (data.fit("smart", max_epochs=100) for data in (problem, problem.rows(order)))
    np.testing.assert_allclose(held_out.predict(one), held_out.predict(other), rtol=0, atol=1e-7)


def test_the_weights_of_the_lowest_loss_are_kept(problem):
    history = problem.fit("smart", max_epochs=400, learning_rate=0.2).fit_history
    assert history["best_loss"] == min(history["loss"]) == history["loss"][history["best_epoch"]]
    shorter = problem.fit("smart", max_epochs=history["best_epoch"] + 1, learning_rate=0.2)
    assert shorter.fit_history["best_loss"] == history["best_loss"]
    assert shorter.fit_history["temperature_mean"] == history["temperature_mean"]


def test_margins_beyond_the_fit_are_clamped_and_counted_on_request(problem, capsys):
    margins, _ = margin_and_excess(check_logits(problem.logits))
    outside = np.array([0.5, 2.0 * margins.max(), 1.0, 9.0 * margins.max()])
    logits = np.column_stack([outside, np.zeros((4, 4))])
    clamped = problem.fit("smart", clamp_margin=True, max_epochs=20)
    clamped.predict_proba(logits)
    assert clamped.share_clamped == 0.5
    assert "smart: 50.00% of 4 inputs are outside" in capsys.readouterr().err
    used = clamped.temperature(np.minimum(outside, margins.max()))
    np.testing.assert_array_equal(clamped.temperature(outside), used)
    free = problem.fit("smart", max_epochs=20)
    free.predict_proba(logits)
    assert free.share_clamped == 0.0


def test_samples_with_one_possible_class_do_not_change_the_fit(problem, held_out):
    certain = np.full((1, 5), -np.inf)
    certain[0, 3] = 1.0
    inputs = np.concatenate([problem.logits, certain]), np.append(problem.labels, 3)
    calibrator = build_calibrator("smart", max_epochs=20).fit(*inputs)
    without = problem.fit("smart", max_epochs=20)
    np.testing.assert_allclose(calibrator._state()["scaling"], without._state()["scaling"])
    np.testing.assert_array_equal(calibrator.predict_proba(certain), [[0.0, 0.0, 0.0, 1.0, 0.0]])


def test_a_file_with_other_weights_than_its_network_is_refused(problem, tmp_path):
    calibrator = problem.fit("smart", max_epochs=2)
    calibrator.hidden_layers = 2
    calibrator.save(tmp_path / "x")
    with pytest.raises(StateError, match="does not fit this version of calgrid"):
        load_calibrator(tmp_path / "x")


INDICATORS = ["margin", "entropy", "confidence", "max_logit", "max_minus_mean", "all_logits"]
OBJECTIVES = ["nll", "ls", "mse", "brier", "softece", "pointwise"]


def read(indicator, logits):
    """The raw inputs of the network for these logits."""
    calibrator = build_calibrator("smart", indicator=indicator)
    return calibrator._inputs(calibrator._checked(logits))


def test_indicators_of_a_row_that_can_be_computed_by_hand():
    logits = np.array([[1.0, 1.0 + np.log(2.0), 1.0], [5.0, -np.inf, -np.inf]])
    np.testing.assert_allclose(read("margin", logits), [[np.log(2.0), np.inf]])
    np.testing.assert_allclose(read("entropy", logits), [[1.5 * np.log(2.0), 0.0]], atol=1e-15)
    np.testing.assert_allclose(read("confidence", logits), [[0.5, 1.0]])
    np.testing.assert_allclose(read("max_logit", logits), [[1.0 + np.log(2.0), 5.0]])
    np.testing.assert_allclose(
        read("max_minus_mean", logits), [[2 / 3 * np.log(2.0), 0.0]], atol=1e-15
    )
    third = np.log(2.0) / 3
    np.testing.assert_allclose(
        read("all_logits", logits),
        [[-third, 0.0], [2 * third, -np.inf], [-third, -np.inf]],
        atol=1e-15,
    )


@pytest.mark.parametrize(
    "options", [{"indicator": i} for i in INDICATORS] + [{"objective": o} for o in OBJECTIVES]
)
def test_every_form_improves_keeps_the_class_and_survives_files(
    problem, held_out, options, tmp_path
):
    calibrator = problem.fit("smart", max_epochs=40, **options)
    assert calibrator.fit_history["best_loss"] < calibrator.fit_history["initial_loss"]
    probabilities = held_out.predict(calibrator)
    np.testing.assert_array_equal(probabilities.argmax(axis=1), held_out.logits.argmax(axis=1))
    calibrator.save(tmp_path / "x")
    np.testing.assert_array_equal(held_out.predict(load_calibrator(tmp_path / "x")), probabilities)


def test_the_trace_holds_what_the_metrics_say_of_the_fit_and_does_not_change_it(problem, held_out):
    plain, traced = (
        problem.fit("smart", objective="nll", max_epochs=50, trace=trace) for trace in (False, True)
    )
    np.testing.assert_array_equal(held_out.predict(plain), held_out.predict(traced))
    history = traced.fit_history
    assert history["trace_epoch"] == [0, 20, 40]
    np.testing.assert_allclose(history["trace_nll"], np.array(history["loss"])[::20])
    first = problem.fit("smart", objective="nll", max_epochs=1)
    assert history["trace_ece"][0] == pytest.approx(
        ece(problem.predict(first), problem.labels), abs=1e-4
    )
    assert "trace_nll" not in first.fit_history


def test_the_guard_keeps_a_network_that_helps_on_samples_it_has_not_seen():
    data, options = margin_dependent(1000, 0), {"max_epochs": 100, "learning_rate": 0.05}
    guarded, free = (
        build_calibrator("smart", guard=guard, **options).fit(*data)
        for guard in ("cross_validation", "none")
    )
    assert guarded.fit_history["guard_kept"] is True
    assert guarded.fit_history["guard_gain"] > guarded.fit_history["guard_error"] > 0.0
    np.testing.assert_array_equal(guarded.predict_proba(data[0]), free.predict_proba(data[0]))


@pytest.mark.parametrize("indicator", ["margin", "max_logit", "all_logits"])
def test_the_guard_falls_back_to_one_temperature_where_the_network_learns_noise(make, indicator):
    data = make(150, temperature=2.0, seed=5)
    options = {"indicator": indicator, "objective": "nll", "max_epochs": 300}
    for rows in (slice(None), slice(9)):  # too few for cross-validation
        used = data.rows(rows)
        guarded = used.fit("smart", guard="cross_validation", **options)
        assert guarded.fit_history["guard_kept"] is False
        np.testing.assert_allclose(used.predict(guarded), used.predict(used.fit("ts")), rtol=1e-9)


def test_the_log_loss_of_a_confidence_is_that_of_a_coin():
    probabilities = np.array([[0.7, 0.2, 0.1], [0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    losses = top_label_log_loss(probabilities, np.array([0, 2, 1]))
    np.testing.assert_allclose(losses, [-np.log(0.7), -np.log(0.3), -np.log(1e-12)])
