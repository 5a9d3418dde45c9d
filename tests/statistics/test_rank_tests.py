"""Ranks over settings and the tests on them."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from calgrid.errors import ConfigError, DataError
from calgrid.statistics import (
    friedman,
    improvements,
    mean_ranks,
    nemenyi_cd,
    setting_ranks,
    wilcoxon_holm,
    win_rates,
)
from calgrid.statistics.ranks import bradley_terry

SIX_SETTINGS = pd.DataFrame(
    [
        [3.1, 2.0, 1.2, 1.0],
        [4.0, 2.2, 1.9, 2.1],
        [2.5, 1.5, 1.6, 0.9],
        [5.0, 3.0, 2.0, 1.5],
        [1.8, 1.9, 1.1, 1.2],
        [3.6, 2.8, 2.4, 1.7],
    ],
    columns=["one", "two", "three", "four"],
)


def test_friedman_and_iman_davenport():
    assert mean_ranks(SIX_SETTINGS).tolist() == pytest.approx([3.8333333, 3, 1.8333333, 1.3333333])
    result = friedman(setting_ranks(SIX_SETTINGS))
    assert result.chi2 == pytest.approx(13.8)
    assert result.p_value == pytest.approx(0.00319042, abs=1e-8)
    assert result.f == pytest.approx(16.428571, abs=1e-6)
    assert result.f_p_value == pytest.approx(stats.f.sf(result.f, 3, 15))
    assert (result.n_settings, result.n_methods) == (6, 4)
    expected = stats.friedmanchisquare(*SIX_SETTINGS.to_numpy().T)
    assert result.chi2 == pytest.approx(expected.statistic)


def test_friedman_of_settings_that_all_agree_and_of_methods_that_all_tie():
    agree, tie = friedman([[1, 2, 3]] * 4), friedman([[2, 2, 2]] * 4)
    assert (agree.chi2, agree.f, agree.f_p_value) == (pytest.approx(8), math.inf, 0)
    assert (tie.chi2, tie.p_value) == pytest.approx((0, 1))


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([[1, 2]], "at least 2 settings"),
        ([[1], [1]], "2 methods"),
        ([[0.3, 0.1], [0.2, 0.5]], "ranks 1 to 2"),
    ],
)
def test_friedman_takes_rankings(ranks, message):
    with pytest.raises(DataError, match=message):
        friedman(ranks)


@pytest.mark.parametrize(
    ("k", "alpha", "q"),
    [(2, 0.05, 1.960), (5, 0.05, 2.728), (15, 0.05, 3.391), (2, 0.10, 1.645), (10, 0.10, 2.920)],
)
def test_critical_difference_is_the_tabulated_quantile(k, alpha, q):
    # at n = k (k + 1) / 6 the root is 1; tables differ from each other in the last digit
    assert nemenyi_cd(k, 1, alpha) / math.sqrt(k * (k + 1) / 6) == pytest.approx(q, abs=1.1e-3)


@pytest.mark.parametrize(
    ("k", "n", "alpha"), [(1, 5, 0.05), (3, 0, 0.05), (3, 5, 0.0), (3, 5, 1.0)]
)
def test_critical_difference_needs_methods_and_settings(k, n, alpha):
    with pytest.raises(ConfigError, match="nemenyi_cd needs"):
        nemenyi_cd(k, n, alpha)


def test_wilcoxon_against_a_reference():
    found = wilcoxon_holm(SIX_SETTINGS, "four")
    assert found.index.tolist() == ["one", "two", "three"]
    assert found.loc["one", "statistic"] == 0
    assert found.loc["one", "p_value"] == 2 / 2**6  # no smaller one exists with six settings
    assert found["n_settings"].tolist() == [6, 6, 6]
    assert found.loc["three", "median_difference"] == pytest.approx(0.35)
    holm = [0.09375, 0.09375, found.loc["three", "p_value"]]
    assert found["p_holm"].tolist() == pytest.approx(holm)


def test_wilcoxon_compares_the_settings_that_both_have():
    scores = SIX_SETTINGS.copy()
    scores.loc[0, "one"] = np.nan
    scores["absent"], scores["equal"] = np.nan, scores["four"]
    found = wilcoxon_holm(scores, "four")
    assert found.loc["one", "n_settings"] == 5
    assert found.loc["one", "p_value"] == 0.0625
    assert found.loc["absent", "n_settings"] == 0
    assert np.isnan(found.loc["absent", "p_holm"])
    assert found.loc["equal", "p_value"] == 1  # no evidence of a difference


def test_wilcoxon_needs_its_reference():
    with pytest.raises(DataError, match="column for the reference 'ce', it has: one, two"):
        wilcoxon_holm(SIX_SETTINGS, "ce")


def test_ties_share_their_mean_rank_or_the_smaller_one():
    scores = pd.DataFrame({"a": [1.0], "b": [1.0], "c": [2.0]})
    assert mean_ranks(scores).tolist() == [1.5, 1.5, 3]
    assert mean_ranks(scores, ties="min").tolist() == [1, 1, 3]


def test_higher_may_be_better():
    scores = pd.DataFrame({"a": [0.9, 0.8], "b": [0.7, 0.9]})
    assert setting_ranks(scores, lower_is_better=False).to_numpy().tolist() == [[1, 2], [2, 1]]


def test_a_missing_number_costs_its_setting():
    scores = SIX_SETTINGS.copy()
    scores.loc[1, "three"] = np.nan
    assert setting_ranks(scores).shape == (5, 4)
    with pytest.raises(DataError, match="a setting without missing numbers"):
        setting_ranks(scores.assign(five=np.nan))
    with pytest.raises(ConfigError, match="ties must be"):
        setting_ranks(scores, ties="max")


def test_improvements_over_settings_of_two_data_sets():
    scores = pd.DataFrame(
        {"none": [0.50, 0.40, 0.30, np.nan], "ts": [0.44, 0.38, 0.30, 0.1]}, index=list("abcd")
    )
    found = improvements(scores, "none", pd.Series(["x", "x", "y", "z"], index=list("abcd")))
    assert found.index.tolist() == ["ts"]
    assert found.loc["ts", "phi"] == pytest.approx((6 + 2 + 0) / 3)
    deviation = np.std([6, 2, 0], ddof=1)
    assert found.loc["ts", "phi_reach"] == pytest.approx(1.96 * deviation / 2**0.5)


def test_win_rates_and_ratings_of_three_methods():
    """a beats b and c in three of four settings, and ties with b in the last."""
    scores = pd.DataFrame(
        {"a": [1, 1, 1, 2.0], "b": [2, 2, 3, 2], "c": [3, 3, 2, 3]}, index=list("wxyz")
    )
    table = win_rates(scores, n_resamples=200).set_index("name")
    rates = {"a": (2 + 2 + 2 + 1.5) / 8, "b": (1 + 1 + 0 + 1.5) / 8, "c": 1 / 8}
    assert table["win_rate"].to_dict() == pytest.approx(rates)
    always = win_rates(pd.DataFrame({"a": [1.0] * 7, "b": [2.0] * 7, "c": [3.0] * 7}))
    assert always[["win_low", "win_high"]].to_numpy().tolist() == [[1, 1], [0.5, 0.5], [0, 0]]
    assert (table["win_low"] <= table["win_rate"]).all()
    assert (table["win_rate"] <= table["win_high"]).all()
    assert table["rating"].mean() == pytest.approx(1000)
    assert table["rating"].is_monotonic_decreasing
    # of two players, the odds of winning are those of the strengths
    two = bradley_terry(np.array([[0, 0.75], [0.25, 0]]))
    assert 10 ** ((two[0] - two[1]) / 400) == pytest.approx(0.8 / 0.3)
    reverse = win_rates(-scores, lower_is_better=False).set_index("name")
    assert reverse["win_rate"].to_dict() == pytest.approx(table["win_rate"].to_dict())
    with pytest.raises(DataError, match="two complete settings"):
        win_rates(scores[:1])
