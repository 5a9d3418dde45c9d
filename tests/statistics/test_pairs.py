"""Tests of pairs: paired over seeds, corrected within families, each pair once, by the rule."""

import functools

import numpy as np
import pytest
from scipy import stats
from tests.statistics import cases
from tests.statistics.cases import frame

from calgrid import statistics
from calgrid.errors import ConfigError
from calgrid.statistics import holm
from calgrid.statistics.pairs import both_ways
from calgrid.statistics.summary import Asked, summarise_study

over_seeds = functools.partial(cases.over_seeds, metric="brier")


def compare(rows, questions, level=0.95, std=0.0):
    """Answers where no difference varies over test samples by default."""
    return statistics.compare(rows, questions, level, cases.resamples(rows, std))


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
    assert row["std_seed"] == pytest.approx((0.000443 / 3) ** 0.5)
    assert row["std_test"] == 0
    assert row["n_seeds"] == 4
    expected = stats.ttest_rel(LS, CE)
    assert [row["p_value"], row["p_seeds"]] == pytest.approx([expected.pvalue] * 2)
    ends = tuple(expected.confidence_interval(0.95))
    assert (row["ci_low"], row["ci_high"]) == pytest.approx(ends)


def test_the_level_sets_interval_and_verdict(two):
    (p_value,) = compare(two, [ask()])["p_value"]
    assert 0.05 < p_value < 0.2
    strict, mild = (compare(two, [ask()], level).iloc[0] for level in (0.95, 0.8))
    assert (strict["verdict"], mild["verdict"]) == ("tie", "better")
    assert strict["ci_low"] < mild["ci_low"] < mild["ci_high"] < 0 < strict["ci_high"]
    with pytest.raises(ConfigError, match="level"):
        compare(two, [ask()], 95)


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
        for metric in ("nll", "accuracy")
        for calibrator in ("none", "ts")
        for name, values in methods.items()
        for row in over_seeds(values, method=name, metric=metric, calibrator=calibrator)
    ]
    result = compare(frame(*rows), [ask("ls"), ask("mbls")])
    small, large = (stats.ttest_rel(methods[name], CE).pvalue for name in ("ls", "mbls"))
    assert len(result) == 8
    for _, family in result.groupby(["metric", "calibrator"]):
        assert family["p_holm"].tolist() == pytest.approx([2 * small, max(2 * small, large)])


def ask_calibrators(calibrator="mine", against="ts", **method):
    return {"question": "?", "calibrator": calibrator, "against": against, **method}


def test_calibrators_are_compared_on_the_same_networks_and_corrected_over_methods():
    fitted = {"none": [v + 0.01 for v in CE], "ts": CE, "mine": LS}
    rows = frame(
        *(
            row
            for method, shift in (("ce", 0.0), ("ls", 0.004))
            for name, values in fitted.items()
            for row in over_seeds(
                [v - shift * i if name == "mine" else v for i, v in enumerate(values)],
                method=method,
                calibrator=name,
            )
        )
    )
    found = compare(rows, [ask_calibrators()])
    sides = ["method", "calibrator", "against", "against_calibrator"]
    of_methods = [[method, "mine", method, "ts"] for method in ("ce", "ls")]
    assert found[sides].to_numpy().tolist() == of_methods
    further = [v - 0.004 * i for i, v in enumerate(LS)]
    large, small = (stats.ttest_rel(mine, CE).pvalue for mine in (LS, further))
    assert found["p_value"].tolist() == pytest.approx([large, small])
    assert found["p_holm"].tolist() == pytest.approx([max(large, 2 * small), 2 * small])
    alone = compare(rows, [ask_calibrators(method="ce")])
    assert alone["p_holm"].tolist() == pytest.approx([large])
    # other questions are another family
    both = compare(rows, [ask("ls", "ce"), ask_calibrators(method="ce")])
    assert both.loc[both["calibrator"] == "mine", "p_holm"].iloc[-1] == pytest.approx(large)


def test_every_place_where_both_methods_were_run_is_answered():
    fog = {"split": "shift", "shift": "fog", "severity": 3}
    places = [{}, {"dataset": "svhn"}, {"checkpoint": "last"}, fog]
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


def test_test_samples_may_hide_what_seeds_show():
    lower = [v - 0.02 + 1e-4 * i for i, v in enumerate(CE)]
    rows = frame(*over_seeds(CE), *over_seeds(lower, method="ls"))
    row = compare(rows, [ask()], std=0.05).iloc[0]
    assert row["p_seeds"] < 0.001
    assert row["verdict"] == "tie"
    assert row["std_test"] == pytest.approx(0.05 / 2**0.5, rel=0.2)  # of two means over 4 seeds
    assert statistics.compare(rows, [ask()])["verdict"].tolist() == ["no verdict"]


def test_an_error_has_the_verdict_of_the_squared_error():
    """Whose bias does not depend on the model; the difference shown remains its own."""
    low = [v / 10 + 1e-6 * i for i, v in enumerate(CE)]
    ece, squares = (
        [*over_seeds(CE, metric=name), *over_seeds(values, metric=name, method="ls")]
        for name, values in (("ece", LS), ("squared_ce", low))
    )
    found = compare(frame(*ece, *squares), [ask()]).set_index("metric")
    assert found["decided_by"].tolist() == ["squared_ce"] * 2
    assert found["verdict"].tolist() == ["better"] * 2
    assert found.loc["ece", "p_value"] == found.loc["squared_ce", "p_value"]
    assert found.loc["ece", "difference"] == pytest.approx(-0.0155)
    assert np.isnan(found.loc["ece", "detectable"])
    assert found.loc["squared_ce", "detectable"] > 0
    assert compare(frame(*ece), [ask()])["verdict"].tolist() == ["no verdict"]


@pytest.mark.parametrize("questions", [[], [ask("mbls")]])
def test_without_answers_there_are_columns_and_no_rows(two, questions):
    result = compare(two, questions)
    assert result.empty
    assert {"question", "difference", "p_holm", "verdict"} < set(result.columns)


def grid(methods=6, calibrators=("none", "ts", "ets"), seeds=4):
    """NLL of methods with calibrators; ``ets`` is nearly ``ts``."""
    rng = np.random.default_rng(0)
    rows = []
    for place, name in enumerate(["ce", *(f"m{number}" for number in range(1, methods))]):
        own = 0.5 - 0.01 * place + 0.005 * rng.normal(size=seeds)
        for calibrator in calibrators:
            lower = {"none": 0.0}.get(calibrator, 0.02)
            noise = 0.001 if calibrator == "none" else 0.003
            values = own - lower + noise * np.random.default_rng(place).normal(size=seeds)
            values = values + (1e-6 * rng.normal(size=seeds) if calibrator == "ets" else 0)
            rows += cases.over_seeds(values, metric="nll", method=name, calibrator=calibrator)
    return frame(*rows)


def study(rows, questions=()):
    resamples = cases.resamples(rows, 0.001)
    return summarise_study(rows, Asked(comparisons=questions), resamples=resamples)


@functools.cache
def plain_tests():
    """Those of the whole grid, without questions."""
    return study(grid())[1]


def p_values(tests):
    pair = ["method", "calibrator", "against", "against_calibrator"]
    return both_ways(tests).set_index(pair)["p_value"].sort_index()


def test_each_pair_is_tested_once_and_has_one_family():
    rows = grid()
    _, tests = study(rows, [ask("m1"), ask("ce", "m2"), ask("m1", "m2")])
    pairs = tests[["method", "calibrator", "against", "against_calibrator"]]
    assert not both_ways(tests).duplicated(list(pairs)).any()
    for (_, family), own in tests.groupby(["metric", "family"]):
        assert own["p_holm"].to_numpy() == pytest.approx(holm(own["p_value"])), family
    asked = tests[tests["family"].str.startswith("questions about methods, none")]
    asked_of = [["m1", "ce"], ["m2", "ce"], ["m1", "m2"]]
    assert asked[["method", "against"]].to_numpy().tolist() == asked_of
    rest = tests[tests["family"] == "against ce, none"]
    assert sorted(rest["method"]) == ["m3", "m4", "m5"]
    best = tests[tests["family"] == "best of all"]  # what differs in one of both is elsewhere
    assert set(best["against"]) == {"m5"}
    assert "m5" not in set(best["method"])


def test_a_p_value_depends_on_its_pair_and_not_on_what_is_asked():
    rows = grid()
    summary, asked = study(rows, [ask("m2", "m1"), ask_calibrators("ets", "ts"), ask("m1")])
    known, again = p_values(plain_tests()), p_values(asked)
    both = known.index.intersection(again.index)  # without questions, also each two methods
    assert len(both) > len(known) / 2
    assert again.loc[both].to_numpy() == pytest.approx(known.loc[both].to_numpy(), abs=0)
    alone = statistics.compare(rows, [ask("m2", "m1")], 0.95, cases.resamples(rows, 0.001), "ce")
    found = again.loc["m2", "none", "m1", "none"].item()
    assert alone.loc[alone["calibrator"] == "none", "p_value"].item() == found
    of_summary = summary.set_index(["method", "calibrator"])["p_value"]
    assert of_summary["m1", "ts"] == again.loc["m1", "ts", "ce", "ts"].item()


def test_without_questions_each_two_of_a_few_methods_have_a_test(monkeypatch):
    def families():
        _, tests = study(grid(methods=4))
        same = (tests["calibrator"] == "none") & (tests["against_calibrator"] == "none")
        pairs = map(frozenset, tests.loc[same, ["method", "against"]].to_numpy())
        return dict(zip(pairs, tests.loc[same, "family"], strict=True))

    found = families()
    assert len(found) == 4 * 3 / 2
    assert "methods with none" in found.values()
    monkeypatch.setattr("calgrid.statistics.pairs.FEW_METHODS", 3)
    kept = {pair: family for pair, family in found.items() if family != "methods with none"}
    assert families() == kept


def test_calibrators_that_are_nearly_equal_change_no_p_value():
    _, few = study(grid(calibrators=("none", "ts")))
    known, again = p_values(few), p_values(plain_tests())
    same = known.index[[("ets" not in (a, b)) for _, a, _, b in known.index]]
    of_calibrators = [pair for pair in same if pair[0] == pair[2]]
    assert of_calibrators
    assert again.loc[of_calibrators].to_numpy() == pytest.approx(known.loc[of_calibrators], rel=0.2)


def test_the_variance_of_two_methods_is_moderated_by_all_of_the_study_and_that_of_calibrators_not():
    rows = grid(methods=6)
    bare = rows[rows["calibrator"] == "none"]
    values = bare.pivot(index="seed", columns="method", values="value")
    prior = np.median(values.drop(columns="ce").sub(values["ce"], axis=0).var())
    prior /= stats.chi2.ppf(0.5, 3) / 3
    difference = values["m2"] - values["m1"]
    error = np.sqrt((2 * prior + 3 * difference.var()) / 5 / 4)
    found = statistics.compare(rows, [ask("m2", "m1")], 0.95, cases.resamples(rows), "ce")
    row = cases.one(found, calibrator="none")
    assert row["p_value"] == pytest.approx(2 * stats.t.sf(abs(difference.mean()) / error, 5))
    asked = [ask_calibrators("ts", "none")]
    of_calibrators = statistics.compare(rows, asked, 0.95, cases.resamples(rows), "ce")
    assert of_calibrators["p_value"].tolist() == pytest.approx(of_calibrators["p_seeds"].tolist())


def test_with_one_seed_calibrators_of_a_network_have_a_verdict_and_methods_have_none():
    _, tests = study(grid(seeds=1))
    same = tests["method"] == tests["against"]
    assert "better" in set(tests.loc[same, "verdict"])
    assert set(tests.loc[~same, "verdict"]) == {"no verdict"}
