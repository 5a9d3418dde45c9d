"""`spline`: the worked example, the basis, and what it does to calibrated and to few data."""

import numpy as np
from scipy.interpolate import CubicSpline
from scipy.optimize import minimize
from tests.calibrators.cases import CONFIDENCE, CORRECT, top_heavy

from calgrid.calibrators import build_calibrator, logits_from_probabilities
from calgrid.calibrators.spline import spline_accuracy

#: of the worked example in the published setting
ACCURACY = np.array(
    [0.238254, 0.344568, 0.491889, 0.616697, 0.721511, 0.669688, 0.537056, 0.720889, 1.063625, 1.188045]
)


def test_the_map_interpolates_the_worked_example_within_its_bounds():
    np.testing.assert_allclose(spline_accuracy(CONFIDENCE, CORRECT, 6), ACCURACY, atol=5e-7)
    # three classes: confidences below one half are possible
    logits = top_heavy(CONFIDENCE, 3)
    calibrator = build_calibrator("spline").fit(logits, np.where(CORRECT == 1, 0, 1))
    expected = np.clip(ACCURACY, 1 / 11, 10 / 11)
    np.testing.assert_allclose(calibrator.predict_proba(logits)[:, 0], expected, atol=5e-7)
    between = np.array([[0.62, 0.19, 0.19], [0.34, 0.33, 0.33], [0.99, 0.005, 0.005]])
    found = calibrator.predict_proba(logits_from_probabilities(between))[:, 0]
    wanted = [expected[3] + (0.62 - 0.58) / (0.65 - 0.58) * (expected[4] - expected[3]), expected[0], expected[-1]]
    np.testing.assert_allclose(found, wanted, atol=5e-7)


def test_the_spline_is_the_least_squares_natural_spline():
    generator = np.random.default_rng(0)
    confidence = np.sort(generator.uniform(size=300))
    correct = (generator.uniform(size=300) < confidence**2).astype(float)
    position, knots = np.linspace(0, 1, 300), np.linspace(0, 1, 6)
    residual = np.cumsum(correct - confidence) / 300

    def spline(values):
        return CubicSpline(knots, values, bc_type="natural")

    best = minimize(lambda values: np.square(spline(values)(position) - residual).sum() * 1e4, np.zeros(6), tol=1e-14)
    expected = confidence + spline(best.x)(position, 1)
    np.testing.assert_allclose(spline_accuracy(confidence, correct, 6), expected, atol=1e-4)


def test_equal_confidences_get_their_accuracy():
    confidence = np.full(100, 0.8)
    labels = (np.arange(100) >= 60).astype(int)
    calibrator = build_calibrator("spline").fit(top_heavy(confidence, 2), labels)
    # the error -0.2 i / N is read over t = (i - 1) / (N - 1): the slope is -0.2 (N - 1) / N
    np.testing.assert_allclose(calibrator.predict_proba(top_heavy(confidence, 2))[:, 0], 0.8 - 0.2 * 0.99, atol=1e-9)
    assert calibrator.fit_history == {"n_points": 1, "warnings": []}


def test_fewer_samples_than_knots_leave_the_confidences_as_they_are():
    logits = top_heavy(np.array([0.6, 0.7, 0.9, 0.99, 0.8]), 2)
    calibrator = build_calibrator("spline").fit(logits, [0, 1, 1, 0, 0])
    np.testing.assert_allclose(calibrator.predict_proba(logits), np.exp(logits), rtol=1e-12)
    assert calibrator.fit_history == {"n_points": 0, "warnings": []}
