"""Agreement with people's votes and other known distributions, and its intervals over images."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.cases import calibrated, predictions, softmax

from calgrid import metrics
from calgrid.errors import ConfigError, DataError
from calgrid.metrics import _estimators, intervals

PROBS = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
VOTES = np.array([[8, 2, 0], [1, 1, 2]])


def test_two_images_by_hand():
    first = 0.8 * np.log(0.8 / 0.7)
    assert metrics.kl_human(PROBS, VOTES) == pytest.approx((first + 0) / 2)
    assert metrics.tv_human(PROBS, VOTES) == pytest.approx(0.1 / 2)
    # bins of .7 against .8 and of .5 against .5
    assert metrics.ece_human(PROBS, VOTES) == pytest.approx(0.1 / 2)


def test_gaps_cancel_within_a_bin():
    probs = np.array([[0.72, 0.28], [0.7, 0.3]])
    votes = np.array([[62, 38], [80, 20]])
    assert metrics.ece_human(probs, votes, n_bins=5) == pytest.approx(0)
    assert metrics.tv_human(probs, votes) == pytest.approx(0.1)


@given(predictions())
@settings(deadline=None, max_examples=40)
def test_one_voter_is_the_label(case):
    probs, labels = case
    votes = np.eye(probs.shape[1])[labels]
    assert metrics.ece_human(probs, votes) == pytest.approx(metrics.ece(probs, labels), abs=1e-12)
    assert metrics.kl_human(probs, votes) == pytest.approx(metrics.nll(probs, labels), abs=1e-12)
    assert 0 <= metrics.tv_human(probs, votes) <= 1 + 1e-12


def test_certain_disagreement_is_finite():
    assert metrics.kl_human([[1.0, 0.0]], [[0, 3]]) == pytest.approx(-np.log(5e-324))
    assert metrics.tv_human([[1.0, 0.0]], [[0, 3]]) == 1


@pytest.mark.parametrize(
    ("votes", "message"),
    [
        ([[1, 2, 3]], r"shape \(2, 3\)"),
        ([[1, 2, 3], [0, 0, 0]], "row 1"),
        ([[1, 2, 3], [-1, 2, 0]], "row 1"),
        ([[np.nan, 2, 3], [1, 2, 0]], "row 0"),
        ([["a", 2, 3], [1, 2, 0]], "array of numbers"),
    ],
)
def test_votes_are_checked(votes, message):
    with pytest.raises(DataError, match=message):
        metrics.kl_human(PROBS, votes)


NAMES = ["soft_kl", "soft_tv", "soft_ece"]


def ambiguous(n, k=4, seed=0, temperature=1.0):
    """Predictions that are the truth at another temperature, and the truth."""
    logits = 2.0 * np.random.default_rng(seed).normal(size=(n, k))
    return softmax(logits / temperature), softmax(logits)


def test_the_truth_has_no_distance_and_no_interval_above_it():
    probs, truth = ambiguous(300)
    assert metrics.evaluate_soft(probs, truth) == pytest.approx(
        dict.fromkeys(NAMES, 0.0), abs=1e-12
    )
    found = metrics.bootstrap_soft(probs, truth, n_resamples=50)
    assert list(found) == NAMES
    assert np.array(list(found.values())) == pytest.approx(np.zeros((3, 2)), abs=1e-12)


@given(predictions(), st.sampled_from([1, 4, 15]))
@settings(deadline=None, max_examples=40)
def test_resampled_values_equal_the_metrics_of_the_resampled_rows(case, n_bins):
    probs, labels = case
    n, k = probs.shape
    truth = np.random.default_rng(labels.sum()).dirichlet(np.ones(k), size=n)
    (weights,) = intervals.resample_weights(n, 4, 3)
    found = _estimators.soft_estimator(probs, truth, n_bins)(weights)
    for r, counts in enumerate(weights.astype(int)):
        rows = np.repeat(np.arange(n), counts)
        expected = metrics.evaluate_soft(probs[rows], truth[rows], n_bins=n_bins)
        assert {name: values[r] for name, values in found.values.items()} == pytest.approx(
            expected, abs=1e-12
        )


def test_intervals_hold_the_value_of_many_more_images():
    whole = metrics.evaluate_soft(*ambiguous(100_000, seed=9, temperature=0.7))
    inside = dict.fromkeys(NAMES, 0)
    for seed in range(40):
        found = metrics.bootstrap_soft(
            *ambiguous(300, seed=seed, temperature=0.7), n_resamples=100, seed=seed
        )
        for name, (low, high) in found.items():
            inside[name] += low <= whole[name] <= high
    assert min(inside.values()) >= 33


@pytest.mark.parametrize("call", [metrics.evaluate_soft, metrics.bootstrap_soft])
def test_arguments_are_checked(call):
    probs, truth = calibrated(6)[0], calibrated(6)[0]
    with pytest.raises(DataError, match="shape"):
        call(probs, truth[:5])
    with pytest.raises(DataError, match="row 0"):
        call(probs, -truth)
    with pytest.raises(DataError, match="probs"):
        call(10 * probs, truth)
    with pytest.raises(ConfigError, match="n_bins"):
        call(probs, truth, n_bins=0)
