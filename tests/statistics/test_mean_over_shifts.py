"""Means over corruptions at a severity, of numbers that were computed one corruption at a time."""

import numpy as np
import pytest
from scipy import stats
from tests.statistics.cases import frame, one, over_seeds

from calgrid.statistics import mean_over_shifts, summarise
from calgrid.statistics.shifts import mean_intervals


def corrupted(shift, severity, value, **other):
    return {"split": "shift", "shift": shift, "severity": severity, "value": value, **other}


def test_mean_of_each_severity_of_each_run():
    means = mean_over_shifts(
        frame(
            corrupted("fog", 1, 0.1),
            corrupted("snow", 1, 0.3),
            corrupted("fog", 2, 0.5),
            corrupted("fog", 1, 0.7, seed=2),
            corrupted("fog", 1, 0.9, metric="nll"),
        )
    )
    assert len(means) == 4
    row = one(means, seed=1, severity=1, metric="ece")
    assert row["value"] == pytest.approx(0.2)
    shown = row[["shift", "n_shifts", "shifts", "n_samples"]].tolist()
    assert shown == ["mean", 2, "fog,snow", 100]
    assert np.isnan(row["ci_low"])
    assert one(means, seed=2)["shifts"] == "fog"


def test_clean_other_domain_and_out_of_distribution_rows_do_not_enter():
    domain = {"split": "shift", "shift": "sketch", "severity": 0}
    rows = frame({}, {"split": "ood", "shift": "ood/svhn"}, domain)
    assert mean_over_shifts(rows).empty


def test_missing_numbers_are_not_counted():
    row = mean_over_shifts(frame(corrupted("fog", 1, 0.1), corrupted("snow", 1, np.nan))).iloc[0]
    assert (row["value"], row["n_shifts"], row["shifts"]) == (0.1, 1, "fog")


def test_means_are_rows_that_can_be_summarised():
    rows = [
        *over_seeds([0.1, 0.2], split="shift", shift="fog", severity=5),
        *over_seeds([0.3, 0.4], split="shift", shift="snow", severity=5),
    ]
    row = one(summarise(mean_over_shifts(frame(*rows))), shift="mean")
    assert row["mean"] == pytest.approx(0.25)
    assert row["n_seeds"] == 2


def test_means_are_not_averaged_again():
    rows = frame(corrupted("fog", 1, 0.1), corrupted("mean", 1, 0.9))
    assert mean_over_shifts(rows)["value"].tolist() == [0.1]


def test_a_mean_has_the_interval_of_its_resamples():
    means = mean_over_shifts(
        frame(
            corrupted("fog", 1, 0.1, metric="squared_ce"),
            corrupted("fog", 1, -0.001, metric="squared_ce", seed=2),
            corrupted("fog", 1, 0.5, metric="ece"),
        )
    )
    drawn = means[means["metric"] == "squared_ce"].assign(draws=[[0.01, -0.01, 0.0]] * 2)
    found = mean_intervals(means, drawn.assign(pairs=[[]] * 2), 0.95)
    reach = stats.t.ppf(0.975, 2) * 0.01
    first = one(found, metric="squared_ce", seed=1)
    assert (first["ci_low"], first["ci_high"]) == pytest.approx((0.1 - reach, 0.1 + reach))
    negative = one(found, metric="squared_ce", seed=2)
    assert (negative["ci_low"], negative["ci_high"]) == pytest.approx((-0.001, reach - 0.001))
    assert np.isnan(one(found, metric="ece")["ci_low"])  # without resamples
