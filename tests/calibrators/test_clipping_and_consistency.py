"""Logit clipping and consistency calibration: worked examples, and the published algorithms."""

import numpy as np
import pytest
from scipy.stats import norm
from tests.calibrators.cases import shifted

from calgrid.calibrators import build_calibrator
from calgrid.calibrators._probabilities import softmax
from calgrid.calibrators.consistency import noisy_scores
from calgrid.calibrators.logit_clipping import clipped
from calgrid.metrics import ece


def test_clipped_logits_of_a_worked_example():
    logits = np.array([[0.0, -3.0, -6.0], [0.0, -np.inf, -8.0]])
    expected = [[0.0, -2.0, -4.0], [0.0, -np.inf, -4.0]]
    np.testing.assert_allclose(clipped(logits, 2.0), expected)


def test_the_clipping_threshold_is_as_good_as_that_of_the_published_grid(problem):
    sharp = problem.replace(3.0 * (problem.logits - problem.logits.mean(axis=1, keepdims=True)))
    found = sharp.fit("logit_clipping").fit_history
    top = sharp.logits.argmax(axis=1)
    errors = []
    for threshold in np.quantile(sharp.logits, 0.8) + 0.01 * np.arange(2000):
        scores = np.clip(sharp.logits, -threshold, threshold)
        accurate = (scores.argmax(axis=1) == problem.labels).mean()
        if accurate > 0.95 * (top == problem.labels).mean():
            scores -= scores.max(axis=1, keepdims=True)
            errors.append(ece(softmax(scores), problem.labels))
    assert found["objective"] == pytest.approx(min(errors), abs=2e-3)
    assert found["objective"] < 0.7 * ece(softmax(shifted(sharp)), problem.labels)


def test_noise_decides_between_two_classes_by_the_normal_distribution():
    gaps = np.array([0.0, 0.5, 3.0, 9.0])
    scores = noisy_scores(np.column_stack([np.zeros(4), -gaps]), 1.5)
    np.testing.assert_allclose(
        softmax(scores)[:, 1], norm.cdf(-gaps / (1.5 * np.sqrt(2.0))), rtol=1e-9
    )


def test_probabilities_under_noise_are_the_shares_of_draws(problem):
    few = problem.rows(slice(5))
    noise = 4.0 * np.random.default_rng(0).normal(size=(100_000, 1, 5))
    winner = (few.logits + noise).argmax(axis=2)
    shares = (winner[:, :, None] == np.arange(5)).mean(axis=0)
    np.testing.assert_allclose(softmax(noisy_scores(shifted(few), 4.0)), shares, atol=5e-3)


def test_equally_likely_classes_remain_so_under_noise_however_many():
    np.testing.assert_allclose(softmax(noisy_scores(np.zeros((1, 1000)), 1.0)), 1e-3, rtol=1e-9)


def test_noise_of_the_best_strength_calibrates_overconfident_logits(problem, held_out):
    sharp = problem.replace(5.0 * problem.logits)
    calibrator = sharp.fit("consistency")
    probabilities = held_out.replace(5.0 * held_out.logits).predict(calibrator)
    assert ece(probabilities, held_out.labels) < 0.07
    # logits of temperature 10: normal noise is about as wide as Gumbel noise of that scale
    assert 8.0 < calibrator.fit_history["strength"] < 20.0
    few = sharp.rows(slice(50))
    fitted = build_calibrator("consistency").fit(few.logits, few.logits.argmax(axis=1))
    (warning,) = fitted.fit_history["warnings"]
    assert "is the smallest of those tried" in warning
