"""One row a reported number: mean, interval, rank, test against the baseline."""

import functools

import numpy as np
import pandas as pd
import pytest
from scipy import special, stats
from tests.statistics import cases
from tests.statistics.cases import frame, one, resamples

from calgrid.errors import ConfigError, DataError
from calgrid.statistics import summarise

over_seeds = functools.partial(cases.over_seeds, metric="brier")


def test_mean_and_interval_over_seeds():
    """Student's interval of the logit of the mean, by the delta method."""
    values = [0.92, 0.93, 0.97]
    row = summarise(frame(*over_seeds(values, metric="auroc"))).iloc[0]
    assert row["mean"] == pytest.approx(0.94)
    assert row["std"] == pytest.approx(np.std(values, ddof=1))
    assert row["n_seeds"] == 3
    error = stats.sem(values) / (0.94 * 0.06)
    ends = stats.t.interval(0.95, 2, loc=special.logit(0.94), scale=error)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(tuple(special.expit(ends)))


def test_intervals_over_seeds_stay_within_the_bounds_of_the_metric():
    cases = {
        "auroc": ([0.97, 0.999], (0, 1)),
        "ece": ([0.001, 0.02], (0, 1)),
        "nll": ([0.01, 0.5], (0, np.inf)),
        "brier": ([1.99, 1.2], (0, 2)),
        "ece_debiased": ([-0.004, 0.006], (0, 1)),
        # no further below than the estimate, which may be negative
        "brier_calibration": ([-0.002, 0.001], (-0.0005, 2)),
        "squared_ce": ([-0.002, -0.001], (-0.0015, 1)),
    }
    rows = [row for name, (values, _) in cases.items() for row in over_seeds(values, metric=name)]
    summary = summarise(frame(*rows)).set_index("metric")
    for name, (values, bounds) in cases.items():
        row = summary.loc[name]
        assert bounds[0] <= row["ci_low"] <= row["mean"] <= row["ci_high"] <= bounds[1], name
        far = stats.t.interval(0.95, 1, loc=np.mean(values), scale=stats.sem(values))
        assert far[0] < bounds[0] or far[1] > bounds[1]  # Student's own ends leave them


def test_the_interval_of_a_part_of_the_ece_ends_no_higher_than_that_of_the_ece():
    """One seed in three has all of the overconfidence: its interval alone would reach 0.4."""
    rows = [
        *over_seeds([0.05, 0.06, 0.055], metric="ece"),
        *over_seeds([0.0, 0.0, 0.03], metric="o_ece"),
    ]
    summary = summarise(frame(*rows))
    whole, part = one(summary, metric="ece"), one(summary, metric="o_ece")
    assert one(summarise(frame(*rows[3:])))["ci_high"] > 0.4
    assert part["ci_high"] == whole["ci_high"] < 0.07
    assert part["ci_low"] < part["mean"] < part["ci_high"]


def test_an_interval_of_seeds_that_agree_is_their_value():
    row = summarise(frame(*over_seeds([1.0, 1.0], metric="accuracy"))).iloc[0]
    assert (row["ci_low"], row["ci_high"]) == (1, 1)


def test_the_level_sets_the_width():
    rows = frame(*over_seeds([0.02, 0.03, 0.07]))
    narrow, wide = summarise(rows, level=0.5).iloc[0], summarise(rows, level=0.99).iloc[0]
    assert wide["ci_low"] < narrow["ci_low"] < narrow["ci_high"] < wide["ci_high"]
    with pytest.raises(ConfigError, match="level"):
        summarise(rows, level=95)


def test_one_seed_keeps_its_bootstrap_interval():
    row = summarise(frame({"value": 0.03, "ci_low": 0.02, "ci_high": 0.05})).iloc[0]
    assert (row["mean"], row["n_seeds"], row["ci_low"], row["ci_high"]) == (0.03, 1, 0.02, 0.05)
    assert np.isnan(row["std"])
    assert np.isnan(row["p_value"])


def test_calibrator_seeds_of_one_run_are_no_spread_over_seeds():
    rows = frame(
        {"fit_seed": 1, "value": 0.01, "ci_low": 0.00, "ci_high": 0.02},
        {"fit_seed": 2, "value": 0.03, "ci_low": 0.02, "ci_high": 0.06},
    )
    row = summarise(rows).iloc[0]
    assert row["n_seeds"] == 1
    assert np.isnan(row["std"])
    assert (row["ci_low"], row["ci_high"]) == pytest.approx((0.01, 0.04))


def test_ranks_are_among_methods_and_calibrators_of_a_column():
    rows = frame(
        {"value": 0.05},
        {"calibrator": "ts", "value": 0.02},
        {"method": "mbls", "value": 0.02},
        {"method": "mbls", "calibrator": "ts", "value": 0.01},
        {"method": "mbls", "dataset": "svhn", "value": 0.9},
        {"method": "mbls", "split": "val", "value": 0.9},
        {"method": "mbls", "split": "shift", "shift": "fog", "severity": 3, "value": 0.9},
    )
    summary = summarise(rows)
    column = summary[(summary["dataset"] == "cifar10") & (summary["split"] == "test")]
    ranks = column.set_index(["method", "calibrator"])["rank"].to_dict()
    assert ranks == {("ce", "none"): 4, ("ce", "ts"): 2.5, ("mbls", "none"): 2.5, ("mbls", "ts"): 1}
    assert (summary.drop(column.index)["rank"] == 1).all()


def test_ranks_know_the_better_side():
    known = {"accuracy": 1, "auroc": 1, "nll": 2, "fpr95": 2, "ece_null": np.nan}
    both = frame({"value": 0.5}, {"method": "mbls", "value": 0.6})
    summary = summarise(pd.concat([both.assign(metric=name) for name in known]))
    larger = summary[summary["method"] == "mbls"].set_index("metric")["rank"]
    assert larger.to_dict() == pytest.approx(known, nan_ok=True)


def test_a_metric_that_does_not_exist():
    with pytest.raises(
        ConfigError, match="Unknown metric 'eec' in the column metric: did you mean 'ece'"
    ):
        summarise(frame({"metric": "eec"}))


def test_difference_and_test_are_paired_over_common_seeds():
    ce, mbls = [0.05, 0.06, 0.08], [0.04, 0.03, 0.06]
    rows = frame(*over_seeds([*ce, 0.9]), *over_seeds(mbls, method="mbls"))
    row = one(summarise(rows), method="mbls")
    assert row["diff_vs_baseline"] == pytest.approx(-0.02)
    assert row["p_seeds"] == pytest.approx(stats.ttest_rel(mbls, ce).pvalue)


def test_the_baseline_itself_and_methods_without_a_common_seed_are_not_tested():
    other = {"metric": "brier", "seed": 3, "method": "mbls", "value": 0.2}
    rows = frame(*over_seeds([0.1, 0.2]), other)
    summary = summarise(rows).set_index("method")
    assert summary.loc["ce", "diff_vs_baseline"] == 0
    assert np.isnan(summary.loc["mbls", "diff_vs_baseline"])
    assert summary[["p_value", "p_holm"]].isna().all(axis=None)


@pytest.mark.parametrize(("shift", "expected"), [(0.0, 1.0), (0.01, np.nan)])
def test_differences_without_variance(shift, expected):
    """All zero: no evidence. All equal: no test, even where rounding pretends to vary."""
    ce = [0.90, 0.95, 0.93]
    rows = frame(*over_seeds(ce), *over_seeds([v + shift for v in ce], method="mbls"))
    assert one(summarise(rows), method="mbls")["p_seeds"] == pytest.approx(expected, nan_ok=True)


def test_missing_runs_are_counted_not_imputed():
    rows = frame(*over_seeds([0.1, np.nan, 0.3]), *over_seeds([0.2, 0.2], method="mbls"))
    summary = summarise(rows)
    assert one(summary, method="ce")["n_seeds"] == 2
    assert one(summary, method="ce")["mean"] == pytest.approx(0.2)
    assert one(summary, method="mbls")["diff_vs_baseline"] == pytest.approx(0.1)  # seed 1 alone
    assert np.isnan(one(summary, method="mbls")["p_value"])


def test_rows_do_not_depend_on_the_order_or_dtype_of_the_input():
    rows = frame(
        *over_seeds([0.1, 0.2]),
        *over_seeds([0.3, 0.1], method="mbls"),
        *over_seeds([0.2, 0.2], split="shift", shift="fog", severity=2),
    )
    expected = summarise(rows)
    shuffled = rows.sample(frac=1, random_state=0)
    words = {column: "category" for column in rows.columns if isinstance(rows[column].iloc[0], str)}
    found = summarise(shuffled.astype({**words, "severity": "int8"}))
    pd.testing.assert_frame_equal(found, expected)


def test_empty_keys_may_be_missing_values():
    rows = frame(*over_seeds([0.1, 0.2]))
    row = summarise(rows.assign(shift=None, severity=np.nan, fit_seed=np.nan)).iloc[0]
    assert (row["shift"], row["severity"], row["n_seeds"]) == ("", 0, 2)


def test_no_rows():
    assert summarise(frame()).empty


def test_a_number_that_stands_twice_is_refused():
    with pytest.raises(DataError, match=r"each number once.*'method': 'mbls'"):
        summarise(frame({"method": "mbls"}, {"method": "mbls", "value": 0.5}))


def test_spread_over_the_seeds_of_a_calibrator_is_told_apart_from_that_over_runs():
    values = {1: [0.1, 0.2, 0.3], 2: [0.4]}
    rows = [
        {"calibrator": "smart", "seed": seed, "fit_seed": fit, "value": value}
        for seed, fits in values.items()
        for fit, value in enumerate(fits)
    ]
    row = one(summarise(frame(*rows)), calibrator="smart")
    assert (row["n_seeds"], row["n_fits"]) == (2, 3)
    assert row["mean"] == pytest.approx(0.3)  # of .2 and .4, not of four numbers
    assert row["std"] == pytest.approx(0.2 / 2**0.5)
    assert row["std_fit"] == pytest.approx(0.1)  # of the run with several seeds


def test_spread_over_test_samples_is_told_apart_from_that_over_seeds():
    width = 2 * stats.norm.ppf(0.975)
    rows = frame(*({"seed": seed, "value": v} for seed, v in enumerate([0.1, 0.5, 0.3])))
    half = 0.01 * width / 2
    rows = rows.assign(ci_low=rows["value"] - half, ci_high=rows["value"] + half)
    row = summarise(rows).iloc[0]
    assert row["std"] == pytest.approx(0.2)
    assert row["std_test"] == pytest.approx(0.01)
    assert row["test_high"] - row["test_low"] == pytest.approx(0.01 * width)
    assert row["ci_high"] - row["ci_low"] > 0.5
    assert np.isnan(summarise(frame({})).iloc[0][["std_test", "test_low"]].to_numpy(float)).all()


def test_a_tie_is_said_where_the_data_cannot_tell():
    ce, seeds = [0.30, 0.31, 0.29, 0.30, 0.305], range(5)
    rows = [
        *over_seeds(ce),
        *over_seeds([ce[s] - 0.1 + 0.001 * (s % 2) for s in seeds], method="mbls"),
        *over_seeds([ce[s] + 0.1 - 0.002 * (s % 2) for s in seeds], method="ls"),
        *over_seeds([ce[s] + 0.02 * (-1) ** s for s in seeds], method="fl3"),
        *over_seeds([ce[s] - 0.1 - 0.001 * (s % 3 - 1) for s in seeds], method="acls"),
    ]
    rows = frame(*({**row, "metric": "nll"} for row in rows))
    summary = summarise(rows, resamples=resamples(rows, 0.001)).set_index("method")
    assert (summary["detectable"].drop("ce") > 0).all()
    verdicts = {"ce": "", "mbls": "better", "ls": "worse", "fl3": "tie", "acls": "better"}
    assert summary["verdict"].to_dict() == verdicts


def test_one_seed_cannot_tell_and_a_reference_value_ranks_nobody():
    rows = frame(
        {"value": 0.5}, {"method": "mbls", "value": 0.1}, {"metric": "ece_null", "value": 0.1}
    )
    rows = rows.assign(metric=rows["metric"].replace("ece", "nll"))
    summary = summarise(rows, resamples=resamples(rows, 1e-3))
    assert one(summary, method="mbls")["verdict"] == "no verdict"
    assert one(summary, metric="ece_null")[["decided_by", "verdict"]].tolist() == ["", ""]


def test_missing_columns_are_named():
    with pytest.raises(DataError, match="missing: shift, ci_low"):
        summarise(frame({}).drop(columns=["shift", "ci_low"]))


def test_the_input_is_left_as_it_was():
    rows = frame(*over_seeds([0.1, 0.2])).assign(shift=None)
    before = rows.copy()
    summarise(rows)
    pd.testing.assert_frame_equal(rows, before)


def test_columns():
    summary = summarise(frame({}))
    expected = "mean std n_seeds std_fit n_fits std_test ci_low ci_high test_low test_high rank"
    expected += " diff_vs_baseline n_common p_seeds p_value p_holm detectable decided_by verdict"
    assert list(summary.columns)[11:] == f"{expected} published published_source".split()
    assert np.isnan(summary["published"].iloc[0])
    assert summary["published_source"].iloc[0] == ""
