"""Calibrators with a temperature: of lowest loss, grid, mixtures, entropy, top-versus-all."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from tests.calibrators.cases import shifted, top_versus_all

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._objectives import TopLabelInputs, build_objective
from calgrid.calibrators._probabilities import centred, logit_scale, softmax
from calgrid.calibrators._temperature import lowest_beta
from calgrid.calibrators._validation import check_logits
from calgrid.calibrators.ets import quadratic_on_simplex
from calgrid.calibrators.hts import log_entropy
from calgrid.errors import ConfigError
from calgrid.metrics import brier, ece, nll
from calgrid.metrics.moments import BLOCK, moments

#: sigmoid(2 / T) is the accuracy 3/4 at T = 2 / ln 3
PAIR = np.array([[2.0, 0.0]] * 4), np.array([0, 0, 0, 1])
OTHERS = ["ls", "mse", "brier", "softece", "charbonnier", "pointwise"]


# shared parts


def test_centring_uses_the_finite_logits_of_each_row():
    np.testing.assert_allclose(
        centred(np.array([[3.0, 1.0, -np.inf], [4.0, 4.0, 1.0]])),
        [[1.0, -1.0, -np.inf], [1.0, 1.0, -2.0]],
    )


@pytest.mark.parametrize("n_samples", [7, 3 * BLOCK // 40])
@pytest.mark.parametrize("each", [False, True])
def test_moments_are_those_of_the_softmax(n_samples, each):
    generator = np.random.default_rng(0)
    logits = 3.0 * generator.normal(size=(n_samples, 40))
    logits -= logits.max(axis=1, keepdims=True)
    beta = generator.uniform(0.05, 15.0, n_samples) if each else 0.7
    scores = logits * np.reshape(beta, (-1, 1))
    weights = softmax(scores)
    mean = (weights * logits).sum(axis=1)
    expected = (
        np.log(np.exp(scores).sum(axis=1)),
        mean,
        (weights * (logits - mean[:, None]) ** 2).sum(axis=1),
    )
    for found, wanted in zip(moments(logits, beta), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-8, atol=1e-10)


def test_impossible_classes_add_nothing_to_moments():
    logits = np.array([[0.0, -1.0, -2.5], [0.0, -0.5, -4.0]])
    padded = np.concatenate([logits, np.full((2, 3), -np.inf)], axis=1)
    np.testing.assert_allclose(moments(padded, 1.3), moments(logits, 1.3), rtol=1e-14)


def as_objective(function):
    """A function of ln beta with its derivative, as a loss of beta of all samples."""
    return lambda beta, rows: (function(np.log(beta))[0], function(np.log(beta))[1] / beta)


def test_the_scan_finds_the_lower_of_two_valleys():
    # (x^2 - 1)^2 + x / 5: valleys near -1 and 1, the left one is lower
    function = as_objective(lambda x: ((x * x - 1.0) ** 2 + 0.2 * x, 4.0 * x * (x * x - 1.0) + 0.2))
    root = min(np.roots([4.0, 0.0, -4.0, 0.2]).real)
    for n_samples in (10, 100_000):
        assert np.log(lowest_beta(function, n_samples).beta) == pytest.approx(root, abs=1e-9)


# ts


def fit(logits, labels, **options):
    return (
        build_calibrator("ts", **options)
        .fit(np.asarray(logits, dtype=float), np.asarray(labels))
        .fit_history
    )


def test_the_temperature_is_exact_where_it_can_be_solved_by_hand():
    # sigmoid(2 beta) must be the accuracy 3/4, so beta = ln(3) / 2
    history = fit(*PAIR)
    assert history["temperature"] == pytest.approx(2.0 / math.log(3.0), abs=1e-10)
    assert history["beta"] * history["temperature"] == pytest.approx(1.0)
    # the fit starts at rows of deviation 5, here (10, 0)
    assert history["loss"][0] == pytest.approx(2.5 + math.log1p(math.exp(-10.0)))


@pytest.mark.parametrize(
    ("label", "bound", "temperature"), [(0, "upper", 0.05), (1, "lower", 100.0)]
)
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
    calibrator = build_calibrator("ts").fit(*PAIR)
    np.testing.assert_allclose(
        calibrator.predict_proba([[2.0, 0.0], [0.0, 4.0]]), [[0.75, 0.25], [0.1, 0.9]]
    )


@pytest.mark.parametrize("objective", ["nll", *OTHERS])
def test_no_other_temperature_has_a_lower_value_of_the_chosen_objective(problem, objective):
    history = fit(problem.logits, problem.labels, objective=objective)
    logits = check_logits(problem.logits)
    unit = logit_scale(logits)
    logits /= unit
    function = build_objective(objective, sigma=0.05, delta=1e-3, alpha=0.05)
    evidence = TopLabelInputs.gather(logits, problem.labels, 0.01, 20.0 * function.reach)
    losses = [
        function(evidence, np.full(len(logits), beta))[0]
        for beta in (unit * history["beta"], *np.geomspace(0.01, 20.0, 500))
    ]
    assert min(history["loss"]) == pytest.approx(losses[0], abs=1e-7)
    assert min(history["loss"]) <= min(losses) + 1e-7


def test_temperature_scaling_with_an_objective_is_another_calibrator():
    # files of earlier versions name all options of ts
    calibrator = build_calibrator("ts", objective="nll", sigma=0.05).fit(*PAIR)
    assert calibrator.id == "ts_objective"
    assert calibrator.beta == build_calibrator("ts").fit(*PAIR).beta
    with pytest.raises(ConfigError, match="Unknown hyper-parameter 'sigma'"):
        build_calibrator("ts", sigma=0.05)


@pytest.mark.parametrize("logits", [np.ones((4, 3)), np.array([[1e4, -np.inf, -np.inf]] * 4)])
@pytest.mark.parametrize("objective", ["nll", *OTHERS])
def test_a_flat_objective_changes_nothing(objective, logits):
    history = fit(logits, [0, 0, 0, 0], objective=objective)
    assert (history["temperature"], history["at_lower_bound"], history["at_upper_bound"]) == (
        1.0,
        False,
        False,
    )


# ts_ece_grid


def test_the_grid_gives_the_temperature_of_lowest_calibration_error(problem):
    calibrator = problem.fit("ts_ece_grid")
    errors = [
        ece(softmax(shifted(problem) / (0.1 * step)), problem.labels) for step in range(1, 101)
    ]
    np.testing.assert_allclose(calibrator.fit_history["loss"], errors, atol=1e-12)
    assert calibrator.fit_history["temperature"] == pytest.approx(0.1 * (np.argmin(errors) + 1))
    assert calibrator.fit_history["ece"] == pytest.approx(min(errors))


def test_the_first_of_equal_errors_wins():
    equal = build_calibrator("ts_ece_grid").fit(np.zeros((4, 2)), np.array([0, 0, 1, 1]))
    assert equal.fit_history["temperature"] == pytest.approx(0.1)


# ts_mix


def test_smoothing_bounds_the_loss(problem, held_out):
    calibrator = problem.fit("ts_mix")
    impossible = np.full((1, 5), -np.inf)
    impossible[0, 3] = 0.0
    assert calibrator.predict_proba(impossible).min() == pytest.approx(1.0 / (5 * 601))
    mixed = held_out.predict(problem.fit("ts")) * 600 / 601 + 1.0 / (5 * 601)
    np.testing.assert_allclose(held_out.predict(calibrator), mixed, rtol=1e-12)


# hts


def test_entropy_is_relative_to_its_largest_value():
    # the last row has the probabilities 1/2, 1/4, 1/4
    logits = np.array(
        [[0.0, 0.0, 0.0], [0.0, -np.inf, -np.inf], [0.0, 0.0, -np.inf], [0.0, *[-math.log(2)] * 2]]
    )
    expected = np.log(np.array([math.log(3), 1e-12, math.log(2), 1.5 * math.log(2)]) / math.log(3))
    np.testing.assert_allclose(log_entropy(logits), expected, atol=1e-12)


def test_entropy_weights_are_a_minimum_of_the_likelihood(problem):
    calibrator = problem.fit("hts")
    history = calibrator.fit_history
    assert history["start_loss"] == pytest.approx(
        problem.fit("ts").fit_history["loss"][-1], abs=1e-12
    )
    assert history["loss"] == pytest.approx(
        nll(problem.predict(calibrator), problem.labels), abs=1e-12
    )
    logits, inputs = shifted(problem), log_entropy(shifted(problem))

    def loss(weights):
        temperature = np.logaddexp(0.0, weights[0] * inputs + weights[1])
        return nll(softmax(logits / temperature[:, None]), problem.labels)

    best = np.array([history["w"], history["b"]])
    assert loss(best) == pytest.approx(history["loss"], abs=1e-12)
    for step in np.random.default_rng(0).normal(size=(20, 2)):
        assert loss(best + 1e-3 * step) > loss(best)


# tva_ts


@pytest.mark.parametrize(
    ("id", "key", "loss"),
    [("tva_ts", "loss", top_versus_all), ("ets", "temperature_loss", brier)],
)
def test_the_temperature_of_lowest_top_versus_all_entropy_or_brier_is_found(make, id, key, loss):
    data = make(2500, temperature=1.7, seed=4)
    history = data.fit(id).fit_history

    def at(beta):
        return loss(softmax(shifted(data) * beta), data.labels)

    found = 1 / history["temperature"]
    assert history[key] == pytest.approx(at(found), abs=1e-10)
    assert all(at(beta) >= history[key] for beta in np.geomspace(0.02, 15.0, 200))
    assert at(found * 1.001) > history[key] < at(found / 1.001)


def test_certain_samples_have_no_say_in_top_versus_all():
    logits, labels = PAIR
    padded = np.concatenate([logits, np.zeros((4, 1)) - np.inf], axis=1)
    certain = np.array([[0.0, -np.inf, -np.inf]] * 3)
    fit = build_calibrator("tva_ts").fit(
        np.concatenate([padded, certain]), np.append(labels, [0, 1, 2])
    )
    assert fit.fit_history["temperature"] == pytest.approx(2 / math.log(3), abs=1e-9)
    alone = build_calibrator("tva_ts").fit(certain, np.array([0, 1, 2]))
    assert alone.fit_history["temperature"] == 1.0


# ets


@settings(deadline=None, max_examples=50)
@given(seed=st.integers(0, 10_000), rank=st.integers(1, 4))
def test_the_quadratic_minimum_on_the_simplex_is_not_beaten(seed, rank):
    generator = np.random.default_rng(seed)
    root = generator.normal(size=(3, rank))
    matrix, vector = root @ root.T, root @ generator.normal(size=rank)
    best = quadratic_on_simplex(matrix, vector)
    assert best.min() >= 0.0
    assert best.sum() == pytest.approx(1.0)
    others = np.concatenate([generator.dirichlet(np.full(3, 0.4), size=300), np.eye(3)])
    values = np.einsum("ni,ij,nj->n", others, matrix, others) - 2.0 * others @ vector
    assert best @ matrix @ best - 2.0 * vector @ best <= values.min() + 1e-9


def member_rows(problem, beta):
    logits = shifted(problem)
    return np.stack([softmax(logits * beta), softmax(logits), np.full(logits.shape, 0.2)])


@pytest.mark.parametrize("objective", ["mse", "nll"])
def test_the_ensemble_is_at_least_as_good_as_sequential_programming_finds(problem, objective):
    history = problem.fit("ets", objective=objective).fit_history
    members, truth = member_rows(problem, history["beta"]), np.eye(5)[problem.labels]

    def loss(weights):
        mixture = np.tensordot(weights, members, axes=1)
        return (
            ((mixture - truth) ** 2).sum(axis=1).mean()
            if objective == "mse"
            else nll(mixture, problem.labels)
        )

    simplex = {"type": "eq", "fun": lambda weights: weights.sum() - 1.0}
    # the sum over classes: with their mean the reference stops early
    found = minimize(
        loss, np.full(3, 1 / 3), method="SLSQP", bounds=[(0, 1)] * 3, constraints=simplex, tol=1e-12
    )
    weights = np.array([history["w_tempered"], history["w_plain"], history["w_uniform"]])
    assert loss(weights) == pytest.approx(history["loss"], abs=1e-10)
    assert history["loss"] <= found.fun + 1e-10
    assert (
        history["loss"]
        <= history["temperature_loss"]
        == pytest.approx(loss(np.array([1.0, 0.0, 0.0])), abs=1e-10)
    )
