"""Claims about calibrators of one network: both tests by hand, what is not tested, and the
direction.
"""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from tests.reporting.test_published_means import places
from tests.reporting.test_published_run_tests import CONFIRMED, OPEN, REFUTED, made, pairs
from tests.statistics.cases import frame

from calgrid.metrics import resampled_metrics
from calgrid.reporting.published.fit_tests import fitted_claim_tests
from calgrid.reporting.published.means import cell_means, cell_runs
from calgrid.statistics import paired_bootstrap

RNG = np.random.default_rng(3)
NOTHING = pd.DataFrame(columns=["protocol", "checkpoint", "cell", "draws"])


def drawn(**cells):
    rows = [(int(name[1:]), np.asarray(values, dtype=float)) for name, values in cells.items()]
    return pd.DataFrame(
        [{"protocol": "p", "checkpoint": "best", "cell": n, "draws": values} for n, values in rows]
    )


def test_deviation_is_that_of_the_difference_on_samples_and_of_the_fits():
    fits = made(c0=(0.010, 0.012, 0.014), c1=(0.030,))
    draws = drawn(c0=(0.010, 0.014, 0.012, 0.011), c1=(0.030, 0.036, 0.029, 0.031))
    row = fitted_claim_tests(fits, pairs((0, 0, 1)), draws, {}).iloc[0]
    differences = np.array([0.020, 0.022, 0.017, 0.020])
    std_test, std_fit = differences.std(ddof=1), 0.002 / math.sqrt(3)
    assert row["gain"] == pytest.approx(0.018)
    assert row["std_test"] == pytest.approx(std_test)
    assert row["std_fit"] == pytest.approx(std_fit)
    assert row["std"] == pytest.approx(math.hypot(std_test, std_fit))
    assert row["p_value"] == pytest.approx(2 * stats.norm.sf(0.018 / math.hypot(std_test, std_fit)))
    assert (row["n_seeds"], row["verdict"]) == (3, CONFIRMED)
    assert math.isnan(row["seeds_needed"])


def test_the_opposite_is_refuted_and_higher_may_be_better():
    fits, draws = (
        made(c0=(0.05,), c1=(0.01,)),
        drawn(c0=RNG.normal(0.05, 0.001, 50), c1=RNG.normal(0.01, 0.001, 50)),
    )
    assert fitted_claim_tests(fits, pairs((0, 0, 1)), draws, {})["verdict"].tolist() == [REFUTED]
    assert fitted_claim_tests(fits, pairs((0, 0, 1), lower=False), draws, {})[
        "verdict"
    ].tolist() == [CONFIRMED]


def test_a_tiny_spread_of_the_fits_is_no_evidence_where_other_samples_could_turn_it():
    fits = made(c0=(0.0100, 0.0101, 0.0100), c1=(0.0110, 0.0110, 0.0111))
    draws = drawn(c0=RNG.normal(0.010, 0.002, 100), c1=RNG.normal(0.011, 0.002, 100))
    assert fitted_claim_tests(fits, pairs((0, 0, 1)), draws, {})["verdict"].tolist() == [OPEN]


def test_without_resamples_nothing_is_told():
    fits = made(c0=(0.01, 0.02), c1=(0.03, 0.04))
    found = fitted_claim_tests(fits, pairs((0, 0, 1)), NOTHING, {}).iloc[0]
    assert math.isnan(found["p_value"])
    assert found["verdict"] == OPEN
    half = fitted_claim_tests(fits, pairs((0, 0, 1)), drawn(c0=(0.01, 0.02)), {}).iloc[0]
    assert math.isnan(half["p_value"])


def test_what_no_resample_tells_apart_is_equal_and_within_any_margin():
    accuracy = (0.95, 0.96, 0.94)
    fits, draws = made(c0=(0.95, 0.95), c1=(0.95,)), drawn(c0=accuracy, c1=accuracy)
    equal = fitted_claim_tests(fits, pairs((0, 0, 1), lower=False), draws, {}).iloc[0]
    assert (equal["p_value"], equal["verdict"]) == (1.0, OPEN)
    kept = fitted_claim_tests(fits, pairs((0, 0, 1), lower=False), draws, {}, margin=0.001).iloc[0]
    assert (kept["p_value"], kept["verdict"]) == (0.0, CONFIRMED)


def test_random_splits_are_tested_with_the_correction_for_their_overlap():
    mine, rival = (0.010, 0.012, 0.011, 0.013, 0.010), (0.030, 0.031, 0.034, 0.032, 0.029)
    row = fitted_claim_tests(
        made(c0=mine, c1=rival), pairs((0, 0, 1)), NOTHING, {0: 4.0, 1: 4.0}
    ).iloc[0]
    gains = np.subtract(rival, mine)
    std = gains.std(ddof=1) * math.sqrt(1 / 5 + 4)
    assert row["std"] == pytest.approx(std)
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(gains.mean() / std, 4))
    plain = stats.ttest_rel(rival, mine).pvalue
    assert row["p_value"] > 100 * plain
    single = fitted_claim_tests(
        made(c0=mine[:1], c1=rival[:1]), pairs((0, 0, 1)), NOTHING, {0: 4.0, 1: 4.0}
    )
    assert math.isnan(single["p_value"].item())


def test_deviation_agrees_with_the_paired_bootstrap_of_compare():
    labels = RNG.integers(0, 4, 400)
    runs = {
        name: RNG.dirichlet(np.ones(4), 400) + np.eye(4)[labels] * share
        for name, share in (("a", 1), ("b", 0.6))
    }
    runs = {name: probs / probs.sum(axis=1, keepdims=True) for name, probs in runs.items()}
    expected = paired_bootstrap(
        {name: [probs] for name, probs in runs.items()}, labels, metrics=["ece"]
    ).iloc[0]
    values = [resampled_metrics(probs, labels)["ece"] for probs in runs.values()]
    fits = made(c0=(expected["difference"],), c1=(0.0,))
    row = fitted_claim_tests(fits, pairs((0, 0, 1)), drawn(c0=values[0], c1=values[1]), {}).iloc[0]
    assert row["std_test"] == pytest.approx(expected["std_test"])
    assert row["gain"] == pytest.approx(-expected["difference"])


def test_holm_is_over_the_claim():
    fits = made(c0=(0.01,), c1=(0.02,), c2=(0.03,))
    draws = drawn(**{f"c{n}": RNG.normal(0.01 * (n + 1), 0.003, 200) for n in range(3)})
    tests = fitted_claim_tests(fits, pairs((0, 0, 1), (1, 0, 2)), draws, {})
    assert tests["p_holm"].max() <= 1
    assert tests["p_holm"].min() == pytest.approx(2 * tests["p_value"].min())


def test_seeds_of_the_calibrator_are_the_spread_of_a_cell():
    fits = [{"fit_seed": seed, "value": value} for seed, value in enumerate((0.01, 0.02, 0.03), 1)]
    runs = cell_runs(frame(*fits), places({}), "fit_seed")
    assert runs[["seed", "value"]].to_numpy().tolist() == [[1, 0.01], [2, 0.02], [3, 0.03]]
    row = cell_means(runs).iloc[0]
    assert (row["mean"], row["std"], row["n_seeds"]) == (
        pytest.approx(0.02),
        pytest.approx(0.01),
        3,
    )
    twice = frame(*fits, *({**fit, "seed": 2, "value": fit["value"] + 0.02} for fit in fits))
    assert cell_runs(twice, places({}), "fit_seed")["value"].tolist() == pytest.approx(
        [0.02, 0.03, 0.04]
    )
