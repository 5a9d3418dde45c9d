"""Conformal sets: scores and metrics worked out by hand, the quantile, coverage, invariants."""

import math

import numpy as np
import pytest

from calgrid.errors import DataError
from calgrid.metrics.conformal import (
    SCORES,
    Ranked,
    SetRule,
    bootstrap_sets,
    conformal_quantile,
    evaluate_sets,
    fit_sets,
    sets_of,
)

PROBS, U = np.array([[0.5, 0.3, 0.15, 0.05]]), np.array([0.4])
#: ten sets of a worked example: sizes, whether they contain the label, labels
SIZES = np.array([1, 1, 1, 2, 2, 3, 4, 4, 1, 2])
COVERED = np.array([1, 1, 0, 1, 1, 1, 1, 1, 1, 0], dtype=bool)
CLASSES = np.repeat([0, 1], 5)


@pytest.fixture(scope="module")
def drawn():
    """Probabilities of 6 classes, labels drawn from them, and uniform numbers."""
    generator = np.random.default_rng(0)
    probs = generator.dirichlet(np.full(6, 0.4), size=4000)
    labels = (probs.cumsum(axis=1) < generator.uniform(size=(4000, 1))).sum(axis=1)
    return probs, labels, generator.uniform(size=4000)


def scored(score, ranked, u, penalty=0.0, free=0):
    """Scores of a rule with these parameters."""
    return SetRule(score, 0.1, 1.0, 1, penalty, free).scores(ranked, u)


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("thr", {}, [0.5, 0.7, 0.85, 0.95]),
        ("aps", {}, [0.2, 0.62, 0.86, 0.97]),
        ("raps", {"penalty": 0.1, "free": 1}, [0.2, 0.72, 1.06, 1.27]),
        ("saps", {"penalty": 0.2}, [0.2, 0.58, 0.78, 0.98]),
    ],
)
def test_scores_of_the_worked_example_in_any_order_of_classes(name, options, expected):
    order = [2, 0, 3, 1]
    found = scored(name, Ranked.of(PROBS), U, **options)[0]
    np.testing.assert_allclose(found, expected, atol=1e-12)
    shuffled = scored(name, Ranked.of(PROBS[:, order]), U, **options)[0]
    np.testing.assert_allclose(shuffled, np.array(expected)[order], atol=1e-12)


def test_aps_without_randomness_is_the_cumulative_sum():
    scores = scored("aps", Ranked.of(PROBS), np.ones(1))
    np.testing.assert_allclose(scores[0], [0.5, 0.8, 0.95, 1.0])


@pytest.mark.parametrize(
    ("n", "alpha", "place"),
    [(15, 0.1, 15), (99, 0.1, 90), (1000, 0.1, 901), (19, 0.05, 19), (9, 0.1, 9)],
)
def test_the_quantile_is_the_value_at_the_rank_of_the_theorem(n, alpha, place):
    values = np.random.default_rng(0).permutation(n) + 1.0
    assert conformal_quantile(values, alpha) == place
    assert conformal_quantile(values[: math.floor(1 / alpha) - 2], alpha) == math.inf


def test_metrics_of_the_worked_example():
    found = evaluate_sets(SIZES, COVERED, CLASSES, 0.1, fewest=1)
    expected = {"coverage": 0.8, "set_size": 2.1, "set_empty": 0.0, "sscv": 0.15, "covgap": 0.1}
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], [value], atol=1e-12)
    assert np.isnan(evaluate_sets(SIZES, COVERED, CLASSES, 0.1)["sscv"]).all()


def test_weights_count_rows():
    index = np.random.default_rng(0).integers(10, size=10)
    weights = np.bincount(index, minlength=10)[:, None].astype(float)
    one = evaluate_sets(SIZES, COVERED, CLASSES, 0.1, weights=weights, fewest=1)
    other = evaluate_sets(SIZES[index], COVERED[index], CLASSES[index], 0.1, fewest=1)
    for name, value in one.items():
        np.testing.assert_allclose(value, other[name], err_msg=name)


@pytest.mark.parametrize("name", SCORES)
def test_coverage_is_that_of_the_guarantee_and_sets_are_nested(drawn, name):
    probs, labels, u = drawn
    rules = fit_sets(probs[:2000], labels[:2000], u[:2000], [name])
    sizes, covered = sets_of(rules, probs[2000:], labels[2000:], u[2000:])
    # coverage has the law of Beta(k, n + 1 - k), and 2,000 test rows: together 0.0095
    for rule, hit in zip(rules, covered, strict=True):
        assert hit.mean() == pytest.approx(1 - rule.alpha, abs=3 * 0.0095)
        assert rule.n_threshold == 1400
    if name != "raps":  # its free ranks depend on the level
        assert (sizes[1] >= sizes[0]).mean() > 0.99


def test_the_largest_class_enters_first(drawn):
    probs, _, u = drawn
    for name in SCORES:
        rule = SetRule(name, 0.1, 0.3, 100, penalty=0.1, free=2)
        inside = rule.scores(Ranked.of(probs), u) <= rule.threshold
        top = inside[np.arange(len(probs)), probs.argmax(axis=1)]
        assert top[inside.any(axis=1)].all(), name


def test_raps_without_a_penalty_or_with_all_ranks_free_is_aps(drawn):
    ranked, u = Ranked.of(drawn[0]), drawn[2]
    for penalty, free in ((0.0, 0), (0.5, 6)):
        np.testing.assert_array_equal(
            scored("raps", ranked, u, penalty, free), scored("aps", ranked, u)
        )


def test_penalties_are_chosen_by_the_size_on_the_tuning_rows(drawn):
    probs, labels, u = drawn
    (rule,) = fit_sets(probs, labels, u, ["saps"], [0.1])
    tuning = slice(0, 1200)
    sizes = {}
    for penalty in SCORES["saps"].penalties:
        scores = scored("saps", Ranked.of(probs[tuning]), u[tuning], penalty)
        threshold = np.sort(scores[np.arange(1200), labels[tuning]])[1081 - 1]
        sizes[penalty] = (scores <= threshold).sum(axis=1).mean()
    assert rule.penalty == min(sizes, key=sizes.get)


def test_intervals_hold_the_estimate_and_narrow_with_the_rows(drawn):
    probs, labels, u = drawn
    rules = fit_sets(probs[:1000], labels[:1000], u[:1000], ["aps"])
    widths = []
    for count in (300, 3000):
        rows = slice(1000, 1000 + count)
        sizes, covered = sets_of(rules, probs[rows], labels[rows], u[rows])
        alphas = [rule.alpha for rule in rules]
        (interval, _) = bootstrap_sets(
            sizes, covered, labels[rows], alphas, n_resamples=200, level=0.95, seed=0
        )
        low, high = interval["coverage"]
        assert low < covered[0].mean() < high
        widths.append(high - low)
    assert widths[0] / widths[1] == pytest.approx(math.sqrt(10), rel=0.3)


def test_too_few_rows_for_a_level_are_refused(drawn, refuses):
    probs, labels, u = drawn
    with refuses(DataError, "Conformal sets at level 0.05 need at least 19 ", "got 18"):
        fit_sets(probs[:26], labels[:26], u[:26], ["thr"])
