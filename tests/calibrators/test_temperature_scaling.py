"""`ts`: the temperature of lowest NLL, to the last digits, with its bounds flagged."""

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from tests.calibrators.cases import nll_of

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._objectives import Evidence, build_objective
from calgrid.calibrators._probabilities import logit_unit
from calgrid.calibrators._validation import check_logits

OTHERS = ["ls", "mse", "brier", "softece", "charbonnier", "pointwise"]


def fit(logits, labels, **options):
    return build_calibrator("ts", **options).fit(np.asarray(logits, dtype=float), np.asarray(labels)).fit_history


def test_the_temperature_is_exact_where_it_can_be_solved_by_hand():
    # sigmoid(2 beta) must be the accuracy 3/4, so beta = ln(3) / 2
    history = fit([[2.0, 0.0]] * 4, [0, 0, 0, 1])
    assert history["temperature"] == pytest.approx(2.0 / math.log(3.0), abs=1e-10)
    assert history["temperature"] == pytest.approx(1.8204784533, abs=1e-10)
    assert history["beta"] * history["temperature"] == pytest.approx(1.0)


def test_no_other_temperature_has_a_lower_nll(problem):
    history = fit(problem.logits, problem.labels)
    found = minimize_scalar(
        lambda beta: nll_of(beta * problem.logits, problem.labels), bounds=(0.01, 20.0), method="bounded"
    )
    best = nll_of(history["beta"] * problem.logits, problem.labels)
    assert best <= found.fun + 1e-12
    assert history["loss"][-1] == pytest.approx(best, abs=1e-9)
    unit = logit_unit(check_logits(problem.logits))
    assert history["loss"][0] == pytest.approx(nll_of(problem.logits / unit, problem.labels))


@pytest.mark.parametrize(("label", "bound", "temperature"), [(0, "upper", 0.05), (1, "lower", 100.0)])
def test_a_likelihood_without_minimum_stops_at_a_flagged_bound(label, bound, temperature):
    # rows of deviation 5 have unit 1
    history = fit([[10.0, 0.0]] * 4, [label] * 4)
    assert history["temperature"] == pytest.approx(temperature)
    assert history[f"at_{bound}_bound"] is True
    assert history[f"at_{'lower' if bound == 'upper' else 'upper'}_bound"] is False


def test_samples_whose_label_is_impossible_are_left_out_and_counted():
    possible = [[2.0, 0.0, -np.inf]] * 4
    history = fit([*possible, [2.0, 0.0, -np.inf]], [0, 0, 0, 1, 2])
    assert history["n_infinite_loss"] == 1
    assert history["temperature"] == pytest.approx(2.0 / math.log(3.0), abs=1e-10)


def test_one_wildly_wrong_sample_does_not_break_the_fit():
    history = fit([[1e4, 0.0]] * 3 + [[2.0, 0.0]] * 5, [0, 0, 1, 0, 0, 0, 1, 1])
    assert history["at_lower_bound"] is True


def test_prediction_is_the_softmax_at_that_temperature():
    calibrator = build_calibrator("ts").fit(np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1]))
    np.testing.assert_allclose(calibrator.predict_proba([[2.0, 0.0], [0.0, 4.0]]), [[0.75, 0.25], [0.1, 0.9]])


@pytest.mark.parametrize("objective", OTHERS)
def test_no_other_temperature_has_a_lower_value_of_the_chosen_objective(problem, objective):
    history = fit(problem.logits, problem.labels, objective=objective)
    logits = check_logits(problem.logits)
    unit = logit_unit(logits)
    logits /= unit
    function = build_objective(objective, sigma=0.05, delta=1e-3, alpha=0.05)
    evidence = Evidence.gather(logits, problem.labels, 0.01, 20.0 * function.reach)
    others = [function(evidence, np.full(len(logits), beta))[0] for beta in np.geomspace(0.01, 20.0, 2000)]
    assert min(history["loss"]) <= min(others) + 1e-7
    found = function(evidence, np.full(len(logits), unit * history["beta"]))[0]
    assert found == pytest.approx(min(history["loss"]), abs=1e-9)


def test_objectives_with_one_minimiser_give_one_temperature(problem):
    def temperature(**options):
        return fit(problem.logits, problem.labels, **options)["temperature"]

    assert temperature(objective="mse") == pytest.approx(temperature(objective="brier"), rel=1e-6)
    assert temperature(objective="ls", alpha=0.0) == pytest.approx(temperature(), rel=1e-4)
    assert temperature(objective="ls", alpha=0.2) > temperature()


@pytest.mark.parametrize("logits", [np.ones((4, 3)), np.array([[1e4, -np.inf, -np.inf]] * 4)])
@pytest.mark.parametrize("objective", ["nll", *OTHERS])
def test_a_flat_objective_changes_nothing(objective, logits):
    history = fit(logits, [0, 0, 0, 0], objective=objective)
    assert (history["temperature"], history["at_lower_bound"], history["at_upper_bound"]) == (1.0, False, False)
