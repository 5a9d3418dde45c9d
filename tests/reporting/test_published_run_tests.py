"""Claims: what the tests of their pairs say, the verdict that follows, and how many seeds would do."""

import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from calgrid.errors import ConfigError
from calgrid.reporting.published.run_tests import claim_tests, claim_verdict, seeds_needed
from calgrid.statistics import holm

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
    counts = pd.Series([setting for setting, *_ in rows]).value_counts()
    return pd.DataFrame(
        [
            {
                "setting": s,
                "cell": mine,
                "rival": rival,
                "lower_is_better": lower,
                "n_rivals": counts[s],
            }
            for s, mine, rival in rows
        ]
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


def test_one_seed_tells_nothing():
    tests = claim_tests(made(c0=LOW[:1], c1=HIGH[:1]), pairs((0, 0, 1)))
    assert tests["verdict"].tolist() == [OPEN]
    assert tests[["p_value", "seeds_needed"]].isna().all(axis=None)


def test_missing_cells_have_no_test_and_cannot_tell():
    for runs in (made(c0=LOW), made()):
        assert claim_tests(runs, pairs((0, 0, 1))).empty
        found = verdict(runs, pairs((0, 0, 1)), 1, 1)
        assert (found["verdict"], found["present"]) == (OPEN, 0)
        assert math.isnan(found["seeds_needed"])
    with pytest.raises(ConfigError, match="level must be between 0 and 1"):
        claim_tests(made(c0=LOW), pairs((0, 0, 1)), level=0)


def verdict(runs, asked, n_settings, at_least):
    return claim_verdict(claim_tests(runs, asked), n_settings, at_least)


def test_confirmed_where_enough_settings_are():
    runs = made(c0=LOW, c1=HIGH, c2=NOISE)
    asked = pairs((0, 0, 1), (1, 0, 2))
    assert verdict(runs, asked, 2, 1)["verdict"] == CONFIRMED
    assert verdict(runs, asked, 2, 2)["verdict"] == OPEN


def test_not_confirmed_once_it_cannot_hold():
    runs = made(c0=LOW, c1=HIGH, c2=NOISE)
    asked = pairs((0, 1, 0), (1, 0, 2), (2, 0, 9))
    found = verdict(runs, asked, 3, 3)
    assert found == {
        "verdict": REFUTED,
        "present": 2,
        "confirmed": 0,
        "refuted": 1,
        "seeds_needed": found["seeds_needed"],
    }
    assert math.isnan(found["seeds_needed"])
    assert verdict(runs, asked, 3, 2)["verdict"] == OPEN  # the other two might hold


def test_all_rivals_must_be_beaten_and_be_there():
    runs = made(c0=LOW, c1=MIDDLE, c2=HIGH)
    assert verdict(runs, pairs((0, 0, 1), (0, 0, 2)), 1, 1)["verdict"] == CONFIRMED
    assert verdict(runs, pairs((0, 1, 0), (0, 1, 2)), 1, 1)["verdict"] == REFUTED
    missing = verdict(runs, pairs((0, 0, 1), (0, 0, 2), (0, 0, 9)), 1, 1)
    assert (missing["verdict"], missing["present"]) == (OPEN, 0)


@pytest.mark.parametrize("effect", [0.1, 0.3, 0.8, 2.0])
@pytest.mark.parametrize("alpha", [0.05, 0.001])
def test_seeds_needed_give_the_power(effect, alpha):
    (n,) = seeds_needed([effect], [1.0], alpha)

    def power(n):
        limit = stats.t.ppf(1 - alpha / 2, n - 1)
        return stats.nct.sf(limit, n - 1, effect * math.sqrt(n))

    assert power(n) > 0.75
    assert power(n - 2) < 0.82


def test_seeds_needed_at_the_ends():
    found = seeds_needed([1e-9, 0.0, 1.0, 1.0, 1.0], [1.0, 1.0, 1e-9, 0.0, math.nan], 0.05)
    assert found[:4].tolist() == [math.inf, math.inf, 2, 2]
    assert math.isnan(found[4])
    assert seeds_needed([0.5], [1.0], 0.001)[0] > seeds_needed([0.5], [1.0], 0.05)[0]
