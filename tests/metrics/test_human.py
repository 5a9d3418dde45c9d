"""Agreement with people's votes."""

import numpy as np
import pytest
from hypothesis import given, settings
from tests.metrics.cases import predictions

from calgrid import metrics
from calgrid.errors import ConfigError, DataError

PROBS = np.array([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]])
VOTES = np.array([[8, 2, 0], [1, 1, 2]])


def test_two_images_by_hand():
    first = 0.8 * np.log(0.8 / 0.7)
    assert metrics.kl_human(PROBS, VOTES) == pytest.approx((first + 0) / 2)
    assert metrics.tv_human(PROBS, VOTES) == pytest.approx(0.1 / 2)
    assert metrics.ece_human(PROBS, VOTES) == pytest.approx(
        0.1 / 2
    )  # bins of .7 against .8 and of .5 against .5


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


def test_probabilities_and_bins_are_checked():
    with pytest.raises(DataError, match="probs"):
        metrics.tv_human(10 * PROBS, VOTES)
    with pytest.raises(ConfigError, match="n_bins"):
        metrics.ece_human(PROBS, VOTES, n_bins=0)
