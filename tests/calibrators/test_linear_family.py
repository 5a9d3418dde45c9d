"""Calibrators with a scale a class or a full matrix: optimality, penalties, limits."""

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import log_softmax, softmax
from tests.calibrators.cases import nll_of, shifted

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._linear import DiagonalDesign, FullDesign, LinearMap, PenalisedLikelihood
from calgrid.calibrators._probabilities import centred, logit_scale
from calgrid.calibrators.ms_odir import N_FOLDS, STRENGTHS, cross_validate, fit_odir, folds
from calgrid.errors import DataError


def smoothed(problem):
    return np.log(problem.predict(problem.fit("ts_mix")))


# shared parts


@pytest.mark.parametrize("design", [DiagonalDesign, FullDesign])
def test_the_likelihood_comes_with_its_derivatives(design):
    """Enough samples for several blocks of rows."""
    generator = np.random.default_rng(0)
    inputs, labels = generator.normal(size=(4000, 40)), generator.integers(0, 40, 4000)
    values, direction, target = generator.normal(
        size=(3, 40, 2 if design is DiagonalDesign else 41)
    )
    likelihood = PenalisedLikelihood(design(inputs), labels, np.abs(target) / 10, target)
    point = likelihood(values)
    scores = (
        inputs * values[:, 0] + values[:, 1]
        if design is DiagonalDesign
        else inputs @ values[:, :-1].T + values[:, -1]
    )
    penalty = (np.abs(target) / 10 * (values - target) ** 2).sum()
    assert point.loss == pytest.approx(nll_of(scores, labels) + penalty, abs=1e-12)
    after, before = likelihood(values + 1e-5 * direction), likelihood(values - 1e-5 * direction)
    assert np.vdot(point.gradient, direction) == pytest.approx(
        (after.loss - before.loss) / 2e-5, rel=1e-7
    )
    rounding = 1e-7 if design is DiagonalDesign else 1e-5
    np.testing.assert_allclose(
        point.curve(direction), (after.gradient - before.gradient) / 2e-5, atol=rounding
    )


# vs


def test_vector_scaling_leaves_absent_classes_at_the_temperature(problem):
    absent = problem.replace(labels=np.where(problem.labels == 2, 3, problem.labels))
    calibrator = absent.fit("vs")
    state, history = calibrator._state(), calibrator.fit_history
    assert history["n_absent"] == 1
    assert state["weight"][2] == pytest.approx(
        logit_scale(shifted(absent)) / history["start_temperature"], rel=1e-12
    )
    assert repr(calibrator).startswith("vs(), fitted on ")  # the start is no part of the map
    assert state["bias"][2] == 0.0
    assert state["bias"].sum() == pytest.approx(0.0, abs=1e-12)
    assert absent.predict(calibrator)[:, 2].mean() > 1e-3


def lowest_loss(inputs, labels, start, ridge, bias_ridge, hidden=False, bounds=None):
    """Lowest penalised NLL that L-BFGS-B finds, over weights like ``start``, (K,) or (K, K), to
    which their ridge draws them, and biases; classes that are hidden are out of the softmax.
    """
    rows, k, diagonal = np.arange(len(labels)), inputs.shape[1], start.ndim == 1

    def loss(x):
        weight, bias = x[:-k].reshape(start.shape), x[-k:]
        scores = (inputs * weight if diagonal else inputs @ weight.T) + bias
        scores = np.where(hidden, -np.inf, scores)
        residual = softmax(scores, axis=1)
        residual[rows, labels] -= 1.0
        residual /= len(labels)
        slope = (residual * inputs).sum(axis=0) if diagonal else residual.T @ inputs
        slope = slope + 2 * ridge * (weight - start)
        penalty = (ridge * (weight - start) ** 2).sum() + bias_ridge * bias @ bias
        gradient = np.append(slope, residual.sum(axis=0) + 2 * bias_ridge * bias)
        return nll_of(scores, labels) + penalty, gradient

    options = {"maxiter": 5000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-12}
    x = np.append(start.ravel(), np.zeros(k))
    return minimize(loss, x, jac=True, method="L-BFGS-B", bounds=bounds, options=options).fun


@pytest.mark.parametrize("share", [0.02, 0.2])
@pytest.mark.parametrize("id", ["vs", "ms_odir"])
def test_impossible_classes_are_out_of_the_softmax_of_the_fit(id, share):
    """The minimum is that of L-BFGS-B over the finite classes of each row."""
    generator = np.random.default_rng(4)
    n, k, strength = 400, 6, 1e-3
    logits = generator.normal(scale=3.0, size=(n, k))
    true = np.exp(logits * np.linspace(0.4, 0.9, k) + generator.normal(scale=0.5, size=k))
    true = true.cumsum(axis=1) / true.sum(axis=1, keepdims=True)
    labels = (true < generator.uniform(size=(n, 1))).sum(axis=1)
    hidden = generator.uniform(size=(n, k)) < share
    hidden[np.arange(n), labels] = False
    logits[hidden] = -np.inf
    calibrator = build_calibrator(id, **({} if id == "vs" else {"strength": strength}))
    history = calibrator.fit(logits, labels).fit_history
    assert history["warnings"] == []

    unit = logit_scale(logits - logits.max(axis=1, keepdims=True))
    shown = np.where(hidden, np.nan, logits)
    inputs = np.where(hidden, 0.0, shown - np.nanmean(shown, axis=1, keepdims=True)) / unit

    if id == "vs":
        lowest = lowest_loss(inputs, labels, np.ones(k), 0.0, 0.0, hidden)
    else:
        lowest = lowest_loss(
            inputs, labels, np.eye(k), strength * (1 - np.eye(k)), strength, hidden
        )
    assert history["loss"] == pytest.approx(lowest, abs=1e-7)
    probabilities = calibrator.predict_proba(logits)
    assert (probabilities[hidden] == 0.0).all()
    if id == "vs":
        loss = nll_of(np.log(np.maximum(probabilities, 1e-300)), labels)
        assert loss == pytest.approx(lowest, abs=1e-7)


@pytest.mark.parametrize("id", ["vs", "ms_odir"])
def test_samples_with_an_impossible_label_are_left_out_and_counted(problem, id):
    logits = problem.logits.copy()
    logits[:3, :] = [1.0, 2.0, -np.inf, 0.0, 0.0]
    labels = np.append([2, 2, 2], problem.labels[3:])
    with_them, without = (
        problem.replace(logits, labels).rows(rows).fit(id) for rows in (slice(None), slice(3, None))
    )
    assert with_them.fit_history["n_infinite_loss"] == 3
    np.testing.assert_array_equal(problem.predict(with_them), problem.predict(without))


@pytest.mark.parametrize("id", ["vs", "ms"])
def test_the_order_of_separable_rows_does_not_matter(id):
    """The penalty of 1e-8 alone determines the minimum, and the fit reaches it."""
    generator = np.random.default_rng(1)
    logits, test = generator.normal(scale=2.5, size=(100, 10)), generator.normal(size=(2000, 10))
    logits[np.arange(100), generator.integers(0, 10, 100)] += 7.0
    labels = logits.argmax(axis=1)
    order = generator.permutation(100)
    first = build_calibrator(id).fit(logits, labels)
    second = build_calibrator(id).fit(logits[order], labels[order])
    assert first.fit_history["gradient_norm"] < 1e-12
    np.testing.assert_allclose(
        second.predict_proba(4 * test), first.predict_proba(4 * test), rtol=0, atol=1e-5
    )

    # no point of a general optimiser is lower
    shifted_logits = logits - logits.max(axis=1, keepdims=True)
    inputs = centred(shifted_logits) / logit_scale(shifted_logits)
    start = 20.0 * (np.ones(10) if id == "vs" else np.eye(10))
    bounds = [(0.01, 20.0) if each else (None, None) for each in start.ravel()]
    lowest = lowest_loss(inputs, labels, start, 1e-8, 1e-8, bounds=[*bounds, *[(None, None)] * 10])
    assert first.fit_history["loss"] <= lowest + 1e-12
    assert lowest < 1.5 * first.fit_history["loss"]


# svs, sms


@pytest.mark.parametrize("id", ["svs", "sms"])
def test_structured_scaling_minimises_the_loss_of_the_paper(problem, id):
    few, n, k = problem.rows(slice(120)), 120, 5
    calibrator = few.fit(id)
    identity, ridge = np.ones(k), k / n
    if id == "sms":
        identity = np.eye(k)
        ridge = np.where(identity == 1, k / n, k * (k - 1) / n)
    lowest = lowest_loss(smoothed(few), few.labels, identity, ridge, k / n)
    assert calibrator.fit_history["loss"] == pytest.approx(lowest, abs=1e-10)
    weight, bias = (calibrator._state()[name] for name in ("weight", "bias"))
    penalty = (ridge * (weight - identity) ** 2).sum() + k / n * bias @ bias
    nll = nll_of(np.log(few.predict(calibrator)), few.labels)
    assert nll + penalty == pytest.approx(lowest, abs=1e-10)


# ms_odir, dirichlet


def inputs_of(id, problem):
    if id == "dirichlet":
        return log_softmax(problem.logits, axis=1)
    return centred(problem.logits) / logit_scale(shifted(problem))


@pytest.mark.parametrize("id", ["ms_odir", "dirichlet"])
def test_odir_has_the_lowest_penalised_loss(problem, id):
    history = problem.fit(id, strength=0.01).fit_history
    ridge = 0.01 * (1.0 - np.eye(5))
    lowest = lowest_loss(inputs_of(id, problem), problem.labels, np.eye(5), ridge, 0.01)
    assert history["loss"] == pytest.approx(lowest, abs=1e-10)


@pytest.mark.parametrize("id", ["ms_odir", "dirichlet"])
def test_the_strength_of_lowest_cross_validated_loss_is_taken(problem, id):
    calibrator = problem.fit(id)
    history, inputs = calibrator.fit_history, inputs_of(id, problem)
    unit = logit_scale(shifted(problem)) if id == "ms_odir" else 1.0
    start = LinearMap(unit * problem.fit("ts").fit_history["beta"] * np.eye(5), np.zeros(5))
    scores = []
    for strength in STRENGTHS[: len(history["fold_nll"])]:
        total = 0.0
        for number in range(N_FOLDS):
            out = folds(problem.labels) == number
            found, _ = fit_odir(inputs[~out], problem.labels[~out], start, start, strength)
            total += (
                nll_of(inputs[out] @ found.weight.T + found.bias, problem.labels[out]) * out.sum()
            )
        scores.append(total / 600)
    np.testing.assert_allclose(history["fold_nll"], scores, rtol=1e-4)
    assert history["strength"] == STRENGTHS[int(np.argmin(scores))]
    np.testing.assert_array_equal(
        problem.predict(calibrator), problem.predict(problem.fit(id, strength=history["strength"]))
    )


def test_folds_share_each_class_evenly():
    labels = np.random.default_rng(0).permutation(np.repeat([0, 1, 2], [9, 30, 6]))
    fold = folds(labels)
    for label, count in ((0, 3), (1, 10), (2, 2)):
        np.testing.assert_array_equal(np.bincount(fold[labels == label]), [count] * 3)


def test_fewer_samples_than_folds_get_the_strongest_penalty():
    start = LinearMap(np.eye(2), np.zeros(2))
    assert cross_validate(np.zeros((2, 2)), np.array([0, 1]), start) == (STRENGTHS[0], [])


@pytest.mark.parametrize("id", ["ms_odir", "dirichlet", "sms"])
def test_many_classes_are_refused_with_an_alternative(id):
    with pytest.raises(DataError, match="at most 1000 classes, got 1001; use 'svs'"):
        build_calibrator(id).fit(np.zeros((3, 1001)), np.array([0, 1, 2]))


@pytest.mark.parametrize("id", ["ms_odir", "dirichlet"])
def test_many_classes_need_a_given_strength(id):
    logits, labels = np.random.default_rng(0).normal(size=(300, 201)), np.arange(300) % 201
    with pytest.raises(DataError, match=r"at most 200 classes, got 201: .* give it a strength"):
        build_calibrator(id).fit(logits, labels)
    assert build_calibrator(id, strength=10.0).fit(logits, labels).fit_history["strength"] == 10.0
