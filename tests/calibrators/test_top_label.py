"""`iso`, `spline`, and the map that moves only the top label's probability."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from tests.calibrators.cases import CONFIDENCE, CORRECT, top_heavy

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.calibrators._probabilities import top_label_map
from calgrid.calibrators.spline import spline_accuracy
from calgrid.errors import DataError


def test_isotonic_regression_gives_the_pooled_accuracies_of_the_worked_example():
    calibrator = build_calibrator("iso").fit(top_heavy(CONFIDENCE), np.where(CORRECT == 1, 0, 1))
    pooled = np.array([0, 0, 1 / 2, 1 / 2, 2 / 3, 2 / 3, 2 / 3, 1, 1, 1])
    probabilities = calibrator.predict_proba(top_heavy(CONFIDENCE))
    np.testing.assert_allclose(probabilities[:, 0], np.clip(pooled, 1 / 11, 10 / 11), atol=1e-12)
    np.testing.assert_allclose(probabilities[:, 1], probabilities[:, 3])
    assert calibrator.fit_history["floor"] == pytest.approx(1 / 11)
    # linear between its points, and constant outside
    between = calibrator.predict_proba(top_heavy(np.array([0.3, (0.58 + 0.65) / 2, 0.99])))
    np.testing.assert_allclose(between[:, 0], [1 / 11, (1 / 2 + 2 / 3) / 2, 10 / 11], atol=1e-12)


@pytest.mark.parametrize(
    ("logits", "target", "expected"),
    [
        (np.log([0.6, 0.3, 0.1]) - np.log(0.6), 0.8, [0.8, 0.15, 0.05]),
        (np.log([0.6, 0.3, 0.1]) - np.log(0.6), 0.2, [0.2, 0.6, 0.2]),
        # saturated: the rest is shared evenly
        ([0.0, -40.0, -60.0], 0.9, [0.9, 0.05, 0.05]),
        ([-np.inf, 0.0, -np.inf], 0.5, [0.25, 0.5, 0.25]),
        # a class stays impossible while others can take the rest
        ([0.0, -1.0, -np.inf], 0.7, [0.7, 0.3, 0.0]),
    ],
)
def test_the_top_label_takes_its_target_and_others_share_the_rest(logits, target, expected):
    np.testing.assert_allclose(top_label_map(np.array([logits]), np.array([target])), [expected])


@settings(deadline=None, max_examples=50)
@given(gaps=st.lists(st.floats(0.0, 50.0), min_size=2, max_size=6), target=st.floats(0.0, 1.0))
def test_any_target_gives_a_distribution_with_that_top_probability(gaps, target):
    logits = -np.array([[0.0, *gaps]])
    probabilities = top_label_map(logits, np.array([target]))
    assert probabilities.sum() == pytest.approx(1.0, abs=1e-12)
    assert probabilities[0, 0] == target
    assert (probabilities >= 0.0).all()


def test_stated_probabilities_become_logits_of_the_same_softmax():
    probabilities = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0]])
    logits = logits_from_probabilities(probabilities)
    assert np.isfinite(logits).all()
    assert logits[1, 1] == pytest.approx(np.log(np.finfo(np.float32).tiny))
    restored = build_calibrator("none").fit(logits, [0, 0]).predict_proba(logits)
    np.testing.assert_allclose(restored, probabilities, rtol=1e-14, atol=1e-37)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([0.5, 0.5], r"must be \(N, K\)"),
        ([[0.5, np.nan]], r"must lie in \[0, 1\]"),
        ([[-0.5, 1.5]], r"must lie in \[0, 1\]"),
        ([[0.5, 0.3]], "must sum to 1"),
    ],
)
def test_numbers_that_are_no_probabilities_are_refused(values, message):
    with pytest.raises(DataError, match=message):
        logits_from_probabilities(values)


def test_the_map_interpolates_the_worked_example_within_its_bounds():
    accuracy = spline_accuracy(CONFIDENCE, CORRECT, 6)
    assert accuracy.min() > 1 / 11
    assert accuracy.max() > 1
    # three classes: confidences below one half are possible
    logits = top_heavy(CONFIDENCE, 3)
    calibrator = build_calibrator("spline").fit(logits, np.where(CORRECT == 1, 0, 1))
    expected = np.clip(accuracy, 1 / 11, 10 / 11)
    np.testing.assert_allclose(calibrator.predict_proba(logits)[:, 0], expected, atol=5e-7)
    between = np.array([[0.62, 0.19, 0.19], [0.34, 0.33, 0.33], [0.99, 0.005, 0.005]])
    found = calibrator.predict_proba(logits_from_probabilities(between))[:, 0]
    wanted = [
        expected[3] + (0.62 - 0.58) / (0.65 - 0.58) * (expected[4] - expected[3]),
        expected[0],
        expected[-1],
    ]
    np.testing.assert_allclose(found, wanted, atol=5e-7)


def test_the_spline_is_the_least_squares_natural_spline():
    generator = np.random.default_rng(0)
    confidence = np.sort(generator.uniform(size=300))
    correct = (generator.uniform(size=300) < confidence**2).astype(float)
    position, knots = np.linspace(0, 1, 300), np.linspace(0, 1, 6)
    residual = np.cumsum(correct - confidence) / 300

    def spline(values):
        return CubicSpline(knots, values, bc_type="natural")

    best = minimize(
        lambda values: np.square(spline(values)(position) - residual).sum() * 1e4,
        np.zeros(6),
        tol=1e-14,
    )
    expected = confidence + spline(best.x)(position, 1)
    np.testing.assert_allclose(spline_accuracy(confidence, correct, 6), expected, atol=1e-4)


def test_equal_confidences_get_their_accuracy():
    confidence = np.full(100, 0.8)
    labels = (np.arange(100) >= 60).astype(int)
    calibrator = build_calibrator("spline").fit(top_heavy(confidence, 2), labels)
    # the error -0.2 i / N is read over t = (i - 1) / (N - 1): the slope is -0.2 (N - 1) / N
    np.testing.assert_allclose(
        calibrator.predict_proba(top_heavy(confidence, 2))[:, 0], 0.8 - 0.2 * 0.99, atol=1e-9
    )
    assert calibrator.fit_history == {"n_points": 1, "converged": True, "warnings": []}


def test_fewer_samples_than_knots_leave_the_confidences_as_they_are():
    logits = top_heavy(np.array([0.6, 0.7, 0.9, 0.99, 0.8]), 2)
    calibrator = build_calibrator("spline").fit(logits, [0, 1, 1, 0, 0])
    np.testing.assert_allclose(calibrator.predict_proba(logits), np.exp(logits), rtol=1e-12)
    assert calibrator.fit_history == {"n_points": 0, "converged": True, "warnings": []}
