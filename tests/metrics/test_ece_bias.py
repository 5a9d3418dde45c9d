"""The two numbers beside an ECE: what bins alone produce, and what is left without their bias."""

import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats
from tests.metrics.cases import calibrated, predictions, with_confidence

from calgrid import metrics


@pytest.mark.parametrize("n", [1, 30, 3000])
def test_null_of_equal_confidences_is_the_mean_deviation_of_the_binomial(n):
    probs, labels = with_confidence([0.7] * n, [1] * n)
    successes = np.arange(n + 1)
    expected = np.abs(successes - 0.7 * n) @ stats.binom.pmf(successes, n, 0.7) / n
    assert metrics.ece_null(probs, labels) == pytest.approx(expected, rel=1e-9)


@given(predictions(max_samples=9))
@settings(deadline=None, max_examples=30)
def test_null_equals_the_mean_over_all_outcomes(case):
    probs, labels = case
    confidence = probs.max(axis=1)
    outcomes = (np.arange(2 ** len(labels))[:, None] >> np.arange(len(labels))) & 1
    chance = np.where(outcomes, confidence, 1 - confidence).prod(axis=1)
    expected = 0.0
    for outcome, weight in zip(outcomes, chance, strict=True):
        gap = np.bincount(
            np.searchsorted(np.linspace(0, 1, 6)[1:-1], confidence), confidence - outcome
        )
        expected += weight * np.abs(gap).sum() / len(labels)
    assert metrics.ece_null(probs, labels, 5) == pytest.approx(expected, abs=1e-12)


def test_debiased_equals_the_mean_of_normal_resamples():
    probs, labels = calibrated(400)
    confidence, correct = probs.max(axis=1), probs.argmax(axis=1) == labels
    index = np.searchsorted(np.linspace(0, 1, 16)[1:-1], confidence)
    rng = np.random.default_rng(0)
    repeats = 20000
    errors = np.zeros(repeats)
    for b in np.unique(index):
        members = index == b
        accuracy = correct[members].mean()
        drawn = rng.normal(accuracy, np.sqrt(accuracy * (1 - accuracy) / members.sum()), repeats)
        errors += members.mean() * np.abs(confidence[members].mean() - drawn)
    expected = 2 * metrics.ece(probs, labels) - errors.mean()
    assert metrics.ece_debiased(probs, labels) == pytest.approx(
        expected, abs=5 * errors.std() / np.sqrt(repeats)
    )


def test_calibrated_models_score_the_null_and_debiasing_removes_two_fifths_of_it():
    """For normal X of mean 0, 2 E|X| - E|X + X'| = (2 - sqrt 2) E|X|, X' an independent copy."""
    cases = [calibrated(500, seed=seed) for seed in range(40)]
    plain = np.mean([metrics.ece(*case) for case in cases])
    debiased = np.mean([metrics.ece_debiased(*case) for case in cases])
    null = np.mean([metrics.ece_null(*case) for case in cases])
    assert plain == pytest.approx(null, rel=0.05)
    assert debiased == pytest.approx((2 - np.sqrt(2)) * plain, rel=0.1)


def test_debiased_leaves_a_bin_without_variance_alone():
    case = with_confidence([0.9, 0.9, 0.9], [1, 1, 1])
    assert metrics.ece_debiased(*case) == pytest.approx(metrics.ece(*case))
