"""Errors of equal-mass bins, the sweep and without bins equal loops over sorted samples; the smooth
calibration error is the optimum of its linear programme.
"""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import linprog
from tests.metrics.cases import calibrated, predictions, with_confidence

from calgrid import metrics


def sorted_case(probs, labels):
    confidence, correct = probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(float)
    order = np.argsort(confidence, kind="stable")
    return confidence[order], correct[order]


def loop_over_sweep(confidence, correct, norm):
    """Raise the number of bins until accuracy decreases; all the bins may hold one sample each."""
    n = len(confidence)
    kept = np.zeros(n, dtype=int)
    for n_bins in range(2, n + 1):
        bins = np.arange(n) * n_bins // n
        accuracy = np.bincount(bins, correct) / np.bincount(bins)
        if (np.diff(accuracy) < 0).any():
            break
        kept = bins
    size, gaps = np.bincount(kept), np.bincount(kept, confidence - correct)
    return (size / n @ (np.abs(gaps) / size) ** norm) ** (1 / norm)


@given(predictions(), st.sampled_from([1, 2]))
@settings(deadline=None, max_examples=80)
def test_sweep_equals_a_loop(case, norm):
    expected = loop_over_sweep(*sorted_case(*case), norm)
    assert metrics.ece_sweep(*case, norm=norm) == pytest.approx(expected, abs=1e-12)


def test_sweep_of_errors_that_all_come_first_goes_on_to_single_samples():
    confidence = np.linspace(0.3, 0.9, 2000)
    correct = np.arange(2000) >= 700
    found = metrics.ece_sweep(*with_confidence(confidence, correct))
    assert found == pytest.approx(np.abs(confidence - correct).mean())


@given(predictions(), st.sampled_from([1, 2, 5, 15, 40]))
@settings(deadline=None, max_examples=50)
def test_equal_counts_equal_a_split_of_the_array_with_the_mean_of_ties(case, n_bins):
    confidence, correct = sorted_case(*case)
    _, tie = np.unique(confidence, return_inverse=True)
    accuracy = np.bincount(tie, correct) / np.bincount(tie)
    runs = np.array_split(confidence - accuracy[tie], n_bins)
    expected = sum(abs(run.sum()) for run in runs) / len(confidence)
    assert metrics.aece_eq(*case, n_bins) == pytest.approx(expected, abs=1e-12)


@given(predictions())
@settings(deadline=None, max_examples=50)
def test_kolmogorov_smirnov_equals_a_loop_over_thresholds(case):
    confidence, correct = sorted_case(*case)
    sums = [(confidence - correct)[confidence <= threshold].sum() for threshold in confidence]
    assert metrics.ks(*case) == pytest.approx(np.abs(sums).max() / len(sums), abs=1e-12)


@pytest.mark.parametrize("n", [40, 2000])
def test_kernel_error_is_the_fixed_point_of_a_direct_quadrature(n):
    probs, labels = calibrated(n)
    confidence, correct = sorted_case(probs, labels)
    s = metrics.smece(probs, labels)
    points = (np.arange(3000) + 0.5) / 3000
    images = [sign * confidence + 2 * shift for sign in (1, -1) for shift in (-1, 0, 1)]
    density = sum(np.exp(-0.5 * ((points[:, None] - image) / s) ** 2) for image in images) / (
        s * np.sqrt(2 * np.pi)
    )
    assert np.abs(density @ (confidence - correct) / n).mean() == pytest.approx(s, abs=2e-6)


def linear_programme(confidence, correct):
    order = np.argsort(confidence)
    residual, n = (correct - confidence)[order] / len(confidence), len(confidence)
    constraints = {}
    if n > 1:
        steps = sparse.diags([-np.ones(n - 1), np.ones(n - 1)], [0, 1], shape=(n - 1, n))
        gaps = np.diff(confidence[order])
        constraints = {"A_ub": sparse.vstack([steps, -steps]), "b_ub": np.concatenate([gaps, gaps])}
    return -linprog(-residual, bounds=(-1, 1), method="highs", **constraints).fun


@given(st.integers(1, 60), st.booleans(), st.floats(0, 1), st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=50)
def test_the_smooth_error_equals_the_linear_programme(n, tied, accuracy, seed):
    rng = np.random.default_rng(seed)
    confidence = rng.integers(2, 21, n) / 20 if tied else rng.uniform(0.06, 1, n)
    correct = (rng.random(n) < accuracy).astype(int)
    assert metrics.smce(*with_confidence(confidence, correct)) == pytest.approx(
        linear_programme(confidence, correct), abs=1e-9
    )


def test_the_smooth_error_equals_the_linear_programme_on_a_thousand_samples():
    probs, labels = calibrated(1000, k=3)
    expected = linear_programme(probs.max(axis=1), (probs.argmax(axis=1) == labels).astype(int))
    assert metrics.smce(probs, labels) == pytest.approx(expected, abs=1e-9)
