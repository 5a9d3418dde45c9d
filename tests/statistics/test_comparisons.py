"""Questions about two methods: paired over seeds, corrected over questions, answered by rule."""

import functools

import numpy as np
import pytest
from scipy import stats
from tests.statistics import cases
from tests.statistics.cases import frame, one

from calgrid.errors import ConfigError
from calgrid.statistics import compare, summarise

over_seeds = functools.partial(cases.over_seeds, metric="brier")
CE = [0.050, 0.060, 0.080, 0.070]
LS = [0.040, 0.030, 0.060, 0.068]


def ask(method="ls", against="ce", question="Is it better?"):
    return {"question": question, "method": method, "against": against}


@pytest.fixture
def two():
    return frame(*over_seeds(CE), *over_seeds(LS, method="ls"))


def test_difference_noise_interval_and_p_value_are_those_of_the_paired_test(two):
    row = compare(two, [ask()]).iloc[0]
    # differences -0.010, -0.030, -0.020, -0.002: mean -0.0155, sum of squares about it 0.000443
    assert row["difference"] == pytest.approx(-0.0155)
    assert row["std"] == pytest.approx((0.000443 / 3) ** 0.5)
    assert row["n_seeds"] == 4
    expected = stats.ttest_rel(LS, CE)
    assert row["p_value"] == pytest.approx(expected.pvalue)
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(
        tuple(expected.confidence_interval(0.95))
    )


def test_the_level_sets_interval_and_verdict(two):
    (p_value,) = compare(two, [ask()])["p_value"]
    assert 0.05 < p_value < 0.2
    strict, mild = (compare(two, [ask()], level).iloc[0] for level in (0.95, 0.8))
    assert (strict["verdict"], mild["verdict"]) == ("tie", "lower")
    assert strict["ci_low"] < mild["ci_low"] < mild["ci_high"] < 0 < strict["ci_high"]
    with pytest.raises(ConfigError, match="level"):
        compare(two, [ask()], 95)


def test_only_common_seeds_count():
    rows = frame(*over_seeds([*CE, 0.9]), *over_seeds([np.nan, *LS[1:]], method="ls"))
    row = compare(rows, [ask()]).iloc[0]
    assert row["n_seeds"] == 3
    assert row["p_value"] == pytest.approx(stats.ttest_rel(LS[1:], CE[1:]).pvalue)


def test_seeds_of_a_calibrator_are_averaged_within_a_run_first():
    fits = [
        {**row, "calibrator": "smart", "fit_seed": fit, "value": row["value"] + shift}
        for row in [*over_seeds(CE), *over_seeds(LS, method="ls")]
        for fit, shift in enumerate((-0.01, 0.01))
    ]
    row = compare(frame(*fits), [ask()]).iloc[0]
    assert row["n_seeds"] == 4
    assert row["p_value"] == pytest.approx(stats.ttest_rel(LS, CE).pvalue)


def test_holm_is_over_all_questions_of_a_metric_and_calibrator():
    methods = {"ce": CE, "ls": LS, "mbls": [0.049, 0.061, 0.075, 0.072]}
    rows = [
        row
        for metric in ("nll", "ece")
        for calibrator in ("none", "ts")
        for name, values in methods.items()
        for row in over_seeds(values, method=name, metric=metric, calibrator=calibrator)
    ]
    result = compare(frame(*rows), [ask("ls"), ask("mbls")])
    small, large = (stats.ttest_rel(methods[name], CE).pvalue for name in ("ls", "mbls"))
    assert len(result) == 8
    for _, family in result.groupby(["metric", "calibrator"]):
        assert family["p_holm"].tolist() == pytest.approx([2 * small, max(2 * small, large)])


def test_every_place_where_both_methods_were_run_is_answered():
    places = [
        {},
        {"dataset": "svhn"},
        {"checkpoint": "last"},
        {"split": "shift", "shift": "fog", "severity": 3},
    ]
    both = [
        row
        for place in places
        for name, values in (("ce", CE), ("ls", LS))
        for row in over_seeds(values, method=name, **place)
    ]
    result = compare(frame(*both, *over_seeds(LS, method="ls", dataset="cifar100")), [ask()])
    assert len(result) == len(places)
    # other places are other families: nothing to correct
    assert result["p_holm"].tolist() == pytest.approx(result["p_value"].tolist())


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([v - 0.02 + 0.0001 * i for i, v in enumerate(CE)], "lower"),
        ([v + 0.02 + 0.0001 * i for i, v in enumerate(CE)], "higher"),
        ([v + 0.01 * (-1) ** i for i, v in enumerate(CE)], "tie"),
        (CE, "equal"),
        # rounding in training: tiny, yet of one sign in all seeds
        ([v - 1e-8 * (1 + 0.01 * i) for i, v in enumerate(CE)], "equal"),
        ([v + 1e-8 for v in CE[:2]], "equal"),
        (CE[:1] + [v + 2e-5 for v in CE[1:]], "tie"),
        ([v + 0.25 for v in CE], "not testable"),
        (CE[:1], "not testable"),
    ],
)
def test_verdicts(values, verdict):
    rows = frame(*over_seeds(CE), *over_seeds(values, method="ls"))
    assert compare(rows, [ask()])["verdict"].tolist() == [verdict]


def test_a_calibration_error_is_found_lower_only_beyond_the_intervals_over_test_samples():
    """Its bias is the same for all seeds, so that a test over seeds alone tells any sharp model
    from a flat one.
    """
    lower = [v - 0.02 + 0.0001 * i for i, v in enumerate(CE)]
    for reach, verdict in ((np.nan, "tie"), (0.02, "tie"), (0.01, "lower")):
        rows = frame(
            *(
                {**row, "ci_low": row["value"] - reach, "ci_high": row["value"] + reach}
                for row in [
                    *cases.over_seeds(CE, metric="aece"),
                    *cases.over_seeds(lower, metric="aece", method="ls"),
                ]
            )
        )
        assert compare(rows, [ask()])["verdict"].tolist() == [verdict]
        row = one(summarise(rows), method="ls")
        assert row["verdict"] == {"lower": "better"}.get(verdict, "tie")
        assert row["p_value"] < 0.001


def test_a_difference_that_holm_takes_back_is_not_found():
    rng = np.random.default_rng(1)
    noise = [
        over_seeds(np.array(CE) + 0.01 * rng.normal(size=4), method=f"m{place}")
        for place in range(20)
    ]
    rows = frame(
        *over_seeds(CE), *over_seeds(LS, method="ls"), *(row for rows in noise for row in rows)
    )
    alone, among = (
        compare(rows, questions, 0.8)
        for questions in ([ask()], [ask(), *(ask(f"m{p}") for p in range(20))])
    )
    assert one(alone, method="ls")["verdict"] == "lower"
    assert one(among, method="ls")["verdict"] == "tie"


def test_rows_stand_in_the_order_of_the_questions(two):
    questions = [ask("ls", "ce", "Second letter?"), ask("ce", "ls", "First letter?")]
    assert compare(two, questions)["question"].tolist() == ["Second letter?", "First letter?"]


@pytest.mark.parametrize("questions", [[], [ask("mbls")]])
def test_without_answers_there_are_columns_and_no_rows(two, questions):
    result = compare(two, questions)
    assert result.empty
    assert {"question", "difference", "p_holm", "verdict"} < set(result.columns)
