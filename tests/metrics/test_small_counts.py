"""Intervals and verdicts where a test set has few samples, errors or samples of a class."""

import numpy as np
import pytest
from scipy import special
from tests.metrics.cases import calibrated, with_confidence

from calgrid import metrics
from calgrid.metrics import intervals
from calgrid.metrics.recalibration import loss_above, nll_parts
from calgrid.metrics.table import METRICS
from calgrid.statistics import paired_bootstrap

TAILS = (0.025, 0.975)


def drawn_sets(n_sets, n_samples, n_classes, spread, factor=1.0):
    """Models whose logits are those of the posterior times a factor, with labels."""
    rng = np.random.default_rng(0)
    for _ in range(n_sets):
        logits = spread * rng.normal(size=(n_samples, n_classes))
        truth = special.softmax(logits, axis=1)
        labels = (truth.cumsum(axis=1) > rng.random((n_samples, 1))).argmax(axis=1)
        yield metrics.check_probabilities(special.softmax(factor * logits, axis=1), labels)


def interval(name, case, seed=0):
    drawn = intervals.resampled_means(case, case.labels, seed=seed)
    return intervals.interval(METRICS[name], drawn, TAILS)


def test_a_refinement_without_a_temperature_has_an_interval_that_holds_the_truth():
    """Two classes with logits N(0, 0.2^2), calibrated: the NLL that no temperature lowers is
    0.68340. At the bound of the temperature all losses are ln 2, and their interval was a point.
    """
    n_bound, n_missed = 0, 0
    for case in drawn_sets(60, 200, 2, 0.2):
        low, high = interval("nll_refinement", case)
        n_bound += nll_parts(case).beta < 1e-9
        n_missed += not low <= 0.68340 <= high
        assert high - low > 0.005
    assert n_bound >= 1
    assert n_missed <= 3  # it was 18 %


def test_the_loss_above_is_that_at_two_deviations_of_the_temperature():
    (case,) = drawn_sets(1, 300, 2, 1.0)
    parts = nll_parts(case)
    odds = np.log(case.probs[:, 0] / case.probs[:, 1])
    p = special.expit(parts.beta * odds)
    slope = odds * (p - (case.labels == 0))
    beta = parts.beta + 2 * np.sqrt(np.mean(slope**2) / 300) / np.mean(odds**2 * p * (1 - p))
    expected = -special.log_expit(beta * np.where(case.labels == 0, odds, -odds))
    np.testing.assert_allclose(loss_above(case), expected, rtol=1e-9)
    told_apart = metrics.check_probabilities(*with_confidence([0.9, 0.8], [1, 1]))
    assert loss_above(told_apart) == pytest.approx([0, 0])


@pytest.mark.parametrize(("name", "truth"), [("nll_calibration", 0.0866), ("squared_ce", 0.01534)])
def test_the_square_of_a_gap_rarely_lies_above_its_interval(name, truth):
    """Logits times 1.5, 60 % right; 8 and 10 % of the intervals of 200 samples ended below it."""
    found = [interval(name, case)[1] for case in drawn_sets(60, 200, 10, 1.78, factor=1.5)]
    assert np.mean(np.array(found) < truth) <= 0.05


def test_the_upper_end_of_a_square_is_symmetric_for_its_root():
    noise = np.array([-1.0, 1.0] * 50) * np.sqrt(2) / np.sqrt(100 / 99)  # deviation sqrt(2)
    still = np.zeros(100)
    drawn = intervals.Resampled(
        {"squared_ce": -1e-3}, {"squared_ce": still}, {"squared_ce": 1e-3 * noise}, {}, 50
    )
    _, high = intervals.interval(METRICS["squared_ce"], drawn, TAILS)
    reach = special.stdtrit(99, 0.975) * np.sqrt(2)
    # of one gap with the deviation sqrt(0.001), seen as 0
    assert high == pytest.approx(1e-3 * (1 + reach + reach**2 / 4))


@pytest.mark.parametrize("name", ["ks", "smce", "ece_sweep"])
def test_the_upper_end_of_these_errors_is_at_least_as_far_as_the_lower_one(name):
    drawn, noise = {name: np.full(100, 0.1)}, {name: np.full(100, 0.04)}
    found = intervals.Resampled({name: 0.1}, drawn, noise, {}, 50)
    assert intervals.interval(METRICS[name], found, TAILS) == pytest.approx((0.06, 0.14))


@pytest.mark.parametrize(("n", "verdict"), [(50, "tie"), (600, "tie"), (3000, "equivalent")])
def test_networks_without_an_error_are_equivalent_only_where_rows_would_show_errors(n, verdict):
    """97 and 99.5 % right differ by 0.05 of the Brier score and 0.11 nats; 22 % of test sets of 50
    rows have no error of either.
    """
    rng = np.random.default_rng(0)
    runs = {}
    for name in ("a", "b"):
        confidence = 1 - 0.001 * rng.uniform(0.9, 1.1, n)
        runs[name] = [with_confidence(confidence, np.ones(n), 2)[0]]
    names = ["accuracy", "brier", "nll", "nll_refinement"]
    found = paired_bootstrap(runs, np.zeros(n, int), metrics=names, n_resamples=200, of_runs=True)
    assert set(found["verdict"]) == {verdict}


@pytest.mark.parametrize("fewest", [19, 20])
def test_the_balanced_accuracy_needs_twenty_samples_of_each_class(fewest):
    labels = np.repeat([0, 1, 2], [fewest, 60, 40])
    noise = np.random.default_rng(0).normal(size=(2, len(labels), 3))
    probs, other = special.softmax(4 * np.eye(3)[labels] + noise, axis=2)
    names = ["balanced_accuracy"]
    bounds = metrics.bootstrap(probs, labels, n_resamples=50)
    rows = paired_bootstrap({"a": [probs], "b": [other]}, labels, metrics=names, of_runs=True)
    assert [np.isfinite(bounds[name]).all() for name in names] == [fewest == 20]
    assert (rows["verdict"] != "no verdict").tolist() == [fewest == 20]
    # few of a class are right, however many it has
    unsure = 0.2 * probs + 0.8 * np.roll(probs, 1, axis=1)
    assert np.isnan(metrics.bootstrap(unsure, labels, n_resamples=9)["balanced_accuracy"]).all()
    absent = metrics.bootstrap(
        np.hstack([probs, np.zeros((len(labels), 1))]), labels, n_resamples=9
    )
    assert np.isnan(absent["balanced_accuracy"]).all()


@pytest.mark.parametrize(("doubt", "known"), [(0.14, False), (0.16, True)])
def test_the_separation_of_errors_needs_thirty_that_the_confidences_expect(doubt, known):
    """The number of those that are seen is no evidence for the number of others."""
    confidence = 1 - doubt + np.linspace(-0.05, 0.05, 200)
    wrong = np.arange(200) % 8 == 0
    # both classes are predicted
    probs = np.column_stack([confidence, 1 - confidence])
    probs[::2] = probs[::2, ::-1]
    labels = np.where(wrong, probs.argmin(axis=1), probs.argmax(axis=1))
    found = metrics.bootstrap(probs, labels, n_resamples=50)
    for name in ("auroc_failure", "aupr_failure", "fpr95_failure", "macro_auroc"):
        assert np.isfinite(found[name]).all() == known


def test_the_interval_of_the_aupr_is_without_its_excess_in_samples():
    """A mean of precisions is too high in a sample, and again in its resamples."""
    probs, labels = calibrated(200)
    drawn = intervals.resampled(probs, labels, n_resamples=200)
    draws, value = drawn.drawn["aupr_failure"], drawn.values["aupr_failure"]
    excess = draws.mean() - value
    assert excess > 0
    expected = intervals.quantiles(draws, TAILS) - 2 * excess
    assert intervals.interval(METRICS["aupr_failure"], drawn, TAILS) == pytest.approx(expected)


def test_the_interval_of_the_aurc_is_normal_below_and_log_normal_above():
    drawn = intervals.Resampled(
        {"aurc": 0.1}, {"aurc": np.array([0.09, 0.11])}, {}, {}, n_samples=100
    )
    low, high = intervals.interval(METRICS["aurc"], drawn, TAILS)
    assert low == pytest.approx(0.1 - 1.959964 * 0.01)
    assert high == pytest.approx(0.1 * np.exp(0.1959964))


def test_equal_networks_on_a_hundred_rows_rarely_differ_in_calibration():
    """Two networks of ten classes with independent errors; 18 to 20 % of the pairs differed."""
    rng, found = np.random.default_rng(5), []
    for seed in range(60):
        logits = 3 * rng.normal(size=(100, 10))
        truth = special.softmax(logits, axis=1)
        labels = (truth.cumsum(axis=1) > rng.random((100, 1))).argmax(axis=1)
        one, other = (
            intervals.resampled_means(
                special.softmax(logits + 1.2 * rng.normal(size=logits.shape), axis=1),
                labels,
                seed=seed,
            )
            for _ in range(2)
        )
        linear, products = (
            getattr(one, part)["squared_ce"] - getattr(other, part)["squared_ce"]
            for part in ("drawn", "noise")
        )
        deviation = np.sqrt(intervals.sampling_variance(linear, products))
        found.append(abs(one.values["squared_ce"] - other.values["squared_ce"]) > 2 * deviation)
    assert np.mean(found) <= 0.1
