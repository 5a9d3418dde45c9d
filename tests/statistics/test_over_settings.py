"""Mean ranks, win rates and critical differences over settings."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.statistics.test_rank_tests import SIX_SETTINGS

from calgrid.errors import ConfigError, DataError
from calgrid.statistics import critical_difference, mean_ranks, nemenyi_cd, rank_intervals, win_rates

FEDLAS = Path(__file__).parents[2] / "config" / "published" / "fedlas.csv"


@pytest.mark.parametrize("metric", ["ece", "aece"])
def test_mean_ranks_of_fedlas_table_1(metric):
    """All sixteen rows, temperature scaling among them, over six settings; ties share the smaller rank there."""
    cells = pd.read_csv(FEDLAS, dtype={"table": str}).query("table == '1'")
    cells = cells.assign(row=cells["method"] + "+" + cells["calibrator"], setting=cells["dataset"] + cells["backbone"])
    printed = cells[cells["metric"] == f"mean_rank_{metric}"].set_index("row")["value"]
    scores = cells[(cells["metric"] == metric)].pivot(index="setting", columns="row", values="value")
    assert scores.shape == (6, 16)
    ranks = mean_ranks(scores, ties="min")
    assert ranks.round(2).to_dict() == printed.to_dict()


def test_intervals_of_mean_ranks_are_those_of_resampled_settings():
    found = rank_intervals(SIX_SETTINGS, n_resamples=4000)
    assert found["mean_rank"].tolist() == pytest.approx(mean_ranks(SIX_SETTINGS).tolist())
    assert found["n_settings"].tolist() == [6] * 4
    rng = np.random.default_rng(7)
    ranks = SIX_SETTINGS.rank(axis=1).to_numpy()
    drawn = ranks[rng.integers(0, 6, (4000, 6))].mean(axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975], axis=0, method="weibull")
    assert found["ci_low"].to_numpy() == pytest.approx(low, abs=0.17)  # a step of the mean of six ranks
    assert found["ci_high"].to_numpy() == pytest.approx(high, abs=0.17)


def test_a_method_that_always_wins_has_rank_one_and_no_spread():
    scores = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [2.0, 3.0, 4.0], "c": [2.5, 2.9, 5.0]})
    found = rank_intervals(scores)
    assert found.loc["a", ["mean_rank", "ci_low", "ci_high"]].tolist() == [1, 1, 1]
    assert found.loc["b", "ci_low"] < found.loc["b", "mean_rank"] < found.loc["b", "ci_high"]
    assert np.isnan(rank_intervals(scores.iloc[:1])[["ci_low", "ci_high"]].to_numpy()).all()


def test_win_rates():
    scores = pd.DataFrame({"a": [1.0, 2.0, 3.0, 4.0], "b": [2.0, 2.0, 2.0, 9.0], "c": [np.nan, 5.0, 6.0, np.nan]})
    found = win_rates(scores).set_index(["method", "against"])
    assert found.loc[("a", "b"), "win_rate"] == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert found.loc[("b", "a"), "win_rate"] == pytest.approx(1 - 2.5 / 4)
    assert found.loc[("a", "c"), ["win_rate", "ci_low", "ci_high", "n_settings"]].tolist() == [1, 1, 1, 2]
    assert found.loc[("a", "b"), "ci_low"] < 2.5 / 4 < found.loc[("a", "b"), "ci_high"]
    higher = win_rates(scores, lower_is_better=False).set_index(["method", "against"])
    assert (higher["win_rate"] + found["win_rate"]).tolist() == pytest.approx([1] * 6)


def test_win_rates_make_up_the_mean_ranks():
    """With k methods, a mean rank is k less the rates against all others, ties counted half."""
    rates = win_rates(SIX_SETTINGS).groupby("method")["win_rate"].sum()
    assert (4 - rates[SIX_SETTINGS.columns]).tolist() == pytest.approx(mean_ranks(SIX_SETTINGS).tolist())


def test_pairs_without_a_common_setting():
    found = win_rates(pd.DataFrame({"a": [1.0, np.nan], "b": [np.nan, 1.0]}))
    assert found["n_settings"].tolist() == [0, 0]
    assert found[["win_rate", "ci_low"]].isna().all(axis=None)


def test_critical_difference_of_six_settings():
    found = critical_difference(SIX_SETTINGS)
    assert found.mean_ranks.index.tolist() == ["four", "three", "two", "one"]
    assert found.cd == pytest.approx(1.914843, abs=1e-6)
    assert found.friedman.chi2 == pytest.approx(13.8)
    # 1.333 1.833 3.000 | 1.833 3.000 and 3.833 lie 2.0 apart, more than the critical difference
    assert found.groups == (("four", "three", "two"), ("two", "one"))


def test_bars_join_only_what_cannot_be_told_apart():
    """Every two methods of a bar are nearer than the critical difference, and every such pair shares a bar."""
    rng = np.random.default_rng(3)
    scores = pd.DataFrame(rng.normal(size=(9, 8)) + np.arange(8) / 2, columns=list("abcdefgh"))
    found = critical_difference(scores, alpha=0.1)
    assert found.cd == pytest.approx(nemenyi_cd(8, 9, 0.1))
    joined = {frozenset((x, y)) for bar in found.groups for x in bar for y in bar if x != y}
    ranks = found.mean_ranks
    near = {
        frozenset((x, y)) for x in ranks.index for y in ranks.index if x < y and abs(ranks[x] - ranks[y]) < found.cd
    }
    assert joined == near
    assert not any(set(a) < set(b) for a in found.groups for b in found.groups)


def test_methods_that_all_differ_have_no_bar():
    scores = pd.DataFrame(np.arange(3.0) + np.zeros((40, 1)), columns=["a", "b", "c"])
    assert critical_difference(scores).groups == ()
    assert critical_difference(scores, lower_is_better=False).mean_ranks.index.tolist() == ["c", "b", "a"]


def test_options_and_shapes_are_checked():
    with pytest.raises(ConfigError, match="level"):
        rank_intervals(SIX_SETTINGS, level=2)
    with pytest.raises(ConfigError, match="n_resamples"):
        win_rates(SIX_SETTINGS, n_resamples=0)
    with pytest.raises(DataError, match="two methods"):
        win_rates(SIX_SETTINGS[["one"]])
    with pytest.raises(DataError, match="at least 2 settings"):
        critical_difference(SIX_SETTINGS.iloc[:1])
