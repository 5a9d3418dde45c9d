"""Claims: tests of their pairs, the verdict that follows, and how many seeds would do."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from calgrid.errors import ConfigError
from calgrid.papers import claims
from calgrid.papers.claims import claim_verdict
from calgrid.statistics import holm

RNG = np.random.default_rng(3)
CONFIRMED, REFUTED, OPEN = "confirmed", "not confirmed", "cannot tell"


def made(**cells):
    """Runs of cells ``c0``, ``c1``, ...: values of seeds 1, 2, ..."""
    rows = [
        {"cell": int(name[1:]), "protocol": "p", "checkpoint": "best", "seed": seed, "value": value}
        for name, values in cells.items()
        for seed, value in enumerate(values, 1)
    ]
    return pd.DataFrame(rows, columns=["cell", "protocol", "checkpoint", "seed", "value"])


def pairs(*rows, lower=True):
    asked = pd.DataFrame(rows, columns=["case", "cell", "rival"])
    n_rivals = asked.groupby("case")["cell"].transform("size")
    about = {"metric": "nll", "lower_is_better": lower, "same_method": False}
    return asked.assign(**about, n_rivals=n_rivals)


def claim_tests(runs, asked, draws=None, redrawn=None, margin=0.0, level=0.95):
    """Tests of runs that do not vary over test samples by default."""
    zeros = runs.assign(draws=[np.zeros(200)] * len(runs), pairs=[[]] * len(runs))
    return claims.claim_tests(
        runs, asked, zeros if draws is None else draws, redrawn, margin, level
    )


LOW, MIDDLE, HIGH = (
    (0.010, 0.012, 0.011, 0.013),
    (0.020, 0.023, 0.021, 0.022),
    (0.050, 0.054, 0.051, 0.052),
)
NOISE = (0.010, 0.030, 0.001, 0.025)


def test_the_test_is_the_paired_one_over_shared_seeds():
    runs = made(c0=LOW, c1=MIDDLE[:3])
    row = claim_tests(runs, pairs((0, 0, 1))).iloc[0]
    expected = stats.ttest_rel(MIDDLE[:3], LOW[:3])
    assert row["n_seeds"] == 3
    assert row["gain"] == pytest.approx(np.mean(np.subtract(MIDDLE[:3], LOW[:3])))
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert row["verdict"] == CONFIRMED


def test_the_variance_of_two_methods_is_moderated_by_the_prior_of_the_study():
    runs = made(c0=LOW[:3], c1=NOISE[:3]).assign(prior=[1e-5] * 3 + [3e-5] * 3)
    difference = np.subtract(NOISE[:3], LOW[:3])
    # prior (1e-5 + 3e-5) / 2 with 2 degrees of freedom, and 2 of 3 seeds
    error = math.sqrt((2 * 2e-5 + 2 * difference.var(ddof=1)) / 4 / 3)
    expected = 2 * stats.t.sf(abs(difference.mean()) / error, 4)
    asked = pairs((0, 0, 1))
    assert claim_tests(runs, asked)["p_value"].tolist() == pytest.approx([expected])
    plain = stats.ttest_rel(NOISE[:3], LOW[:3]).pvalue
    calibrators = asked.assign(same_method=True)
    assert claim_tests(runs, calibrators)["p_value"].tolist() == pytest.approx([plain])


def test_holm_is_over_all_pairs_of_the_claim():
    tests = claim_tests(made(c0=LOW, c1=MIDDLE, c2=NOISE), pairs((0, 0, 1), (1, 0, 2)))
    assert tests["p_holm"].tolist() == pytest.approx(holm(tests["p_value"]).tolist())
    assert tests["verdict"].tolist() == [CONFIRMED, OPEN]
    assert tests["seeds_needed"].isna().tolist() == [True, False]


def test_the_opposite_and_the_direction_of_the_metric():
    runs = made(c0=HIGH, c1=LOW)
    assert claim_tests(runs, pairs((0, 0, 1)))["verdict"].tolist() == [REFUTED]
    assert claim_tests(runs, pairs((0, 0, 1), lower=False))["verdict"].tolist() == [CONFIRMED]


def test_a_margin_claims_only_not_to_be_worse():
    runs = made(c0=MIDDLE, c1=LOW)  # worse by 0.01
    assert claim_tests(runs, pairs((0, 0, 1)), margin=0.02)["verdict"].tolist() == [CONFIRMED]
    assert claim_tests(runs, pairs((0, 0, 1)), margin=0.005)["verdict"].tolist() == [REFUTED]


def test_missing_cells_have_no_test_and_cannot_tell():
    for runs in (made(c0=LOW), made()):
        assert claim_tests(runs, pairs((0, 0, 1))).empty
        found = verdict(runs, pairs((0, 0, 1)), 1, 1)
        assert (found["verdict"], found["present"]) == (OPEN, 0)
        assert math.isnan(found["seeds_needed"])
    with pytest.raises(ConfigError, match="level must be between 0 and 1"):
        claim_tests(made(c0=LOW), pairs((0, 0, 1)), level=0)


def verdict(runs, asked, n_cases, at_least):
    return claim_verdict(claim_tests(runs, asked), n_cases, at_least)


def test_confirmed_where_enough_settings_are():
    runs = made(c0=LOW, c1=HIGH, c2=NOISE)
    asked = pairs((0, 0, 1), (1, 0, 2))
    assert verdict(runs, asked, 2, 1)["verdict"] == CONFIRMED
    assert verdict(runs, asked, 2, 2)["verdict"] == OPEN


def test_not_confirmed_once_it_cannot_hold():
    runs = made(c0=LOW, c1=HIGH, c2=NOISE)
    asked = pairs((0, 1, 0), (1, 0, 2), (2, 0, 9))
    found = verdict(runs, asked, 3, 3)
    assert math.isnan(found.pop("seeds_needed"))
    assert found == {"verdict": REFUTED, "present": 2, "confirmed": 0, "refuted": 1}
    assert verdict(runs, asked, 3, 2)["verdict"] == OPEN  # the other two might hold


def test_all_rivals_must_be_beaten_and_be_there():
    runs = made(c0=LOW, c1=MIDDLE, c2=HIGH)
    assert verdict(runs, pairs((0, 0, 1), (0, 0, 2)), 1, 1)["verdict"] == CONFIRMED
    assert verdict(runs, pairs((0, 1, 0), (0, 1, 2)), 1, 1)["verdict"] == REFUTED
    missing = verdict(runs, pairs((0, 0, 1), (0, 0, 2), (0, 0, 9)), 1, 1)
    assert (missing["verdict"], missing["present"]) == (OPEN, 0)


# calibrators of one network
# ---------------------------------------------------------------------------------------


def drawn(**cells):
    """Resamples of cells ``c0``, ... in seed 1."""
    place = {"protocol": "p", "checkpoint": "best", "seed": 1, "pairs": []}
    rows = [{**place, "cell": int(name[1:]), "draws": v} for name, v in cells.items()]
    return pd.DataFrame(rows, columns=[*place, "cell", "draws"])


def fit_tests(fits, asked, draws=None, redrawn=()):
    return claims.claim_tests(fits, asked, drawn() if draws is None else draws, redrawn)


def test_deviation_is_that_of_the_difference_on_samples_and_of_the_fits():
    fits = made(c0=(0.010, 0.012, 0.014), c1=(0.030,))
    mine, rival = RNG.normal(0, 0.002, 200), RNG.normal(0, 0.003, 200)
    row = fit_tests(fits, pairs((0, 0, 1)), drawn(c0=mine, c1=rival)).iloc[0]
    assert row["gain"] == pytest.approx(0.018)
    assert row["std_test"] == pytest.approx(np.std(mine - rival, ddof=1))
    assert row["std_seed"] / math.sqrt(3) == pytest.approx(0.002 / math.sqrt(3))
    assert (row["n_seeds"], row["verdict"]) == (3, CONFIRMED)
    assert math.isnan(row["seeds_needed"])


def test_what_no_resample_tells_apart_is_open():
    accuracy = np.full(200, 0.01)
    draws = drawn(c0=accuracy, c1=accuracy)
    equal = fit_tests(made(c0=(0.95, 0.95), c1=(0.95,)), pairs((0, 0, 1), lower=False), draws)
    assert (equal["p_value"].item(), equal["verdict"].item()) == (1.0, OPEN)


def test_random_splits_are_tested_with_the_correction_for_their_overlap():
    mine, rival = (0.010, 0.012, 0.011, 0.013, 0.010), (0.030, 0.031, 0.034, 0.032, 0.029)
    row = fit_tests(made(c0=mine, c1=rival), pairs((0, 0, 1)), None, {0, 1}).iloc[0]
    gains = np.subtract(rival, mine)
    std = gains.std(ddof=1) * math.sqrt(1 / 5 + 4)  # a fifth of the images fits
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(gains.mean() / std, 4))
    single = fit_tests(made(c0=mine[:1], c1=rival[:1]), pairs((0, 0, 1)), None, {0, 1})
    assert math.isnan(single["p_value"].item())
