"""Calibrators whose definition another package shares give its probabilities.

Compared with scikit-learn and probmetrics 1.3.0; skipped where the latter is not installed.
"""

import numpy as np
import pytest
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import softmax

#: their logarithm must be finite
LEAST = 1e-30
#: calibrator -> its name there, and the largest difference of a probability; theirs are fitted in
#: float32 and stop earlier
SHARED = {
    "ts": ("temp-scaling", 1e-5),
    "ts_mix": ("ts-mix", 1e-5),
    "svs": ("svs", 2e-3),
    "sms": ("sms", 5e-3),
    "ivap_ova": ("ivap-ovr", 2e-3),
}


@pytest.fixture(scope="module")
def peers():
    return pytest.importorskip(
        "probmetrics.calibrators", reason="the package probmetrics is not installed"
    )


def largest_difference(name, theirs, problem, held_out):
    """Largest difference of a probability after a fit on the same probabilities in float32."""
    fitted_on, at = (
        np.maximum(softmax(each.logits), LEAST).astype(np.float32) for each in (problem, held_out)
    )
    ours = build_calibrator(name).fit(np.log(fitted_on), problem.labels)
    theirs.fit(fitted_on, problem.labels.astype(np.int64))
    return np.abs(ours.predict_proba(np.log(at)) - np.asarray(theirs.predict_proba(at))).max()


@pytest.mark.parametrize("name", SHARED)
def test_probabilities_are_those_of_probmetrics(peers, problem, held_out, name):
    named, tolerance = SHARED[name]
    theirs = peers.get_calibrator(named)
    assert largest_difference(name, theirs, problem, held_out) < tolerance


def test_ensemble_temperature_scaling_is_that_of_probmetrics(peers, problem, held_out):
    assert largest_difference("ets", peers.ETSCalibrator(), problem, held_out) < 1e-4


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
