"""Calibrators whose definition scikit-learn shares give its probabilities."""

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import softmax


def test_isotonic_maps_of_classes_are_those_of_scikit_learn_within_bounds(problem, held_out):
    floor = 1 / (len(problem.labels) + 1)
    fitted_on, at = softmax(problem.logits), softmax(held_out.logits)
    maps = []
    for k in range(fitted_on.shape[1]):
        peer = IsotonicRegression(y_min=floor, y_max=1 - floor, out_of_bounds="clip")
        maps.append(peer.fit(fitted_on[:, k], problem.labels == k).predict(at[:, k]))
    expected = np.transpose(maps) / np.sum(maps, axis=0)[:, None]
    ours = build_calibrator("iso_ova").fit(problem.logits, problem.labels)
    np.testing.assert_allclose(ours.predict_proba(held_out.logits), expected, atol=1e-12)


def test_platt_scaling_of_two_classes_is_logistic_regression_on_the_log_odds():
    random = np.random.default_rng(3)
    odds = random.normal(0.0, 3.0, 500)
    labels = (random.random(500) < 1.0 / (1.0 + np.exp(1.0 - 0.4 * odds))).astype(int)
    logits = np.column_stack([np.zeros(500), odds])
    theirs = LogisticRegression(C=1e12, tol=1e-10).fit(odds[:, None], labels)
    ours = build_calibrator("platt").fit(logits, labels)
    found = ours.predict_proba(logits)
    assert np.abs(found - theirs.predict_proba(odds[:, None])).max() < 1e-5
