"""Objectives of temperatures: values by hand, formulas on the full softmax, exact gradients."""

import dataclasses

import numpy as np
import pytest
import torch
from tests.calibrators.cases import torch_confidence_loss
from torch.nn import functional

from calgrid.calibrators._objectives import (
    SoftBinning,
    TopLabelInputs,
    build_objective,
    log_rest,
    margin_and_excess,
)
from calgrid.calibrators._validation import check_logits
from calgrid.errors import DataError

NAMES = ["nll", "ls", "mse", "brier", "softece", "charbonnier", "pointwise"]
SIGMA, DELTA, ALPHA = 0.05, 1e-3, 0.05


def build(name, **changes):
    return build_objective(name, **{"sigma": SIGMA, "delta": DELTA, "alpha": ALPHA, **changes})


def exact_evidence(logits, labels):
    """Inputs without interpolation."""
    scores = check_logits(logits)
    _, excess = margin_and_excess(scores)
    evidence = TopLabelInputs.gather(scores, labels, 0.01, 20.0)
    return dataclasses.replace(evidence, rest=lambda beta: log_rest(excess, beta))


def torch_loss(name, scaled, labels, **options):
    """The objective as its formula is usually written, on scaled logits ``(N, K)``."""
    if name in ("nll", "ls"):
        return functional.cross_entropy(
            scaled, labels, label_smoothing=ALPHA if name == "ls" else 0.0
        )
    probabilities = torch.softmax(scaled, dim=1)
    if name in ("mse", "brier"):
        squares = (probabilities - functional.one_hot(labels, scaled.shape[1])) ** 2
        return squares.mean() if name == "mse" else squares.sum(dim=1).mean()
    top, predicted = probabilities.max(dim=1)
    return torch_confidence_loss(name, top, (predicted == labels).double(), **options)


@pytest.mark.parametrize("n_classes", [2, 7])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in NAMES),
        *(("charbonnier", {"sigma": s, "delta": d}) for s in (0.01, 0.3) for d in (1e-3, 0.1)),
    ],
)
def test_loss_and_gradient_are_those_of_automatic_differentiation(make, name, options, n_classes):
    data = make(300, n_classes)
    beta = np.random.default_rng(0).uniform(0.1, 3.0, 300)
    leaf = torch.tensor(beta, requires_grad=True)
    expected = torch_loss(
        name, torch.tensor(data.logits) * leaf[:, None], torch.tensor(data.labels), **options
    )
    expected.backward()
    loss, gradient = build(name, **options)(exact_evidence(data.logits, data.labels), beta)
    assert loss == pytest.approx(expected.item(), rel=1e-10)
    np.testing.assert_allclose(gradient, leaf.grad.numpy(), rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_table_gives_nearly_the_exact_loss_and_the_gradient_of_what_it_gives(make, name):
    data = make(200, 50)
    objective = build(name)
    table = TopLabelInputs.gather(
        check_logits(data.logits), data.labels, 0.01, objective.reach * 10.0
    )
    beta = np.exp(np.random.default_rng(1).uniform(np.log(0.02), np.log(9.0), 200))
    assert objective(table, beta)[0] == pytest.approx(
        objective(exact_evidence(data.logits, data.labels), beta)[0], abs=1e-5
    )
    direction, step = np.random.default_rng(2).normal(size=200) * beta, 1e-6
    slope = (
        objective(table, beta + step * direction)[0] - objective(table, beta - step * direction)[0]
    ) / (2 * step)
    assert objective(table, beta)[1] @ direction == pytest.approx(slope, rel=1e-5, abs=1e-9)


def test_softece_has_no_slope_where_all_residuals_vanish():
    loss, slope = SoftBinning(delta=0.0).of_confidence(np.ones(4), np.ones(4))
    assert loss == 0.0
    np.testing.assert_array_equal(slope, 0.0)


def test_samples_whose_label_is_impossible_do_not_change_the_log_losses():
    logits = np.array([[2.0, 0.0, -1.0], [1.0, -np.inf, 0.5], [0.0, 3.0, 1.0]])
    beta = np.array([0.5, 1.0, 2.0])
    for name in ("nll", "ls"):
        loss, gradient = build(name)(exact_evidence(logits, np.array([0, 1, 1])), beta)
        kept = build(name)(exact_evidence(logits[[0, 2]], np.array([0, 1])), beta[[0, 2]])
        assert loss == pytest.approx(kept[0])
        np.testing.assert_allclose(gradient[[0, 2]], kept[1])
        assert gradient[1] == 0.0


def test_an_impossible_label_has_probability_zero_in_the_squared_losses():
    logits = np.array([[1.0, -np.inf, 0.5], [0.0, -np.inf, -np.inf]])
    p = 1.0 / (1.0 + np.exp(-0.5))
    loss, gradient = build("brier")(exact_evidence(logits, np.array([1, 0])), np.ones(2))
    assert loss == pytest.approx((1.0 + p**2 + (1 - p) ** 2) / 2)
    assert gradient[0] == pytest.approx(0.5 * (2 * p - 2 * (1 - p)) * 0.5 * p * (1 - p))


def test_smoothed_labels_go_to_possible_classes_only():
    evidence = exact_evidence(np.array([[2.0, 0.0, -np.inf]]), np.array([0]))
    p = 1.0 / (1.0 + np.exp(-2.0))
    smoothed = -(1 - ALPHA / 2) * np.log(p) - ALPHA / 2 * np.log(1 - p)
    assert build("ls")(evidence, np.ones(1))[0] == pytest.approx(smoothed)


def test_impossible_labels_alone_are_refused():
    with pytest.raises(DataError, match="every label's logit is -inf"):
        exact_evidence(np.array([[0.0, 1.0, -np.inf]]), np.array([2]))


def test_a_sample_with_one_possible_class_has_no_gradient():
    evidence = exact_evidence(np.array([[0.0, -np.inf, -np.inf]]), np.array([0]))
    for name in NAMES:
        loss, gradient = build(name)(evidence, np.array([0.7]))
        assert np.isfinite(loss)
        assert gradient[0] == 0.0


@pytest.mark.parametrize("name", NAMES)
def test_evidence_of_some_rows_is_that_of_their_logits(make, name):
    data = make(60, 6)
    rows, beta = np.array([3, 59, 7, 7]), np.array([0.3, 0.9, 1.5, 4.0])
    whole = TopLabelInputs.gather(check_logits(data.logits), data.labels, 0.01, 20.0)
    part = TopLabelInputs.gather(check_logits(data.logits[rows]), data.labels[rows], 0.01, 20.0)
    one, other = build(name)(whole.rows(rows), beta), build(name)(part, beta)
    assert one[0] == pytest.approx(other[0], rel=1e-12)
    np.testing.assert_allclose(one[1], other[1], rtol=1e-12)
