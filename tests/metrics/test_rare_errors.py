"""Errors that were not seen, and what chance does to a calibrated model."""

import itertools

import numpy as np
import pytest
from scipy import stats
from tests.metrics.cases import calibrated, with_confidence

from calgrid import metrics
from calgrid.metrics import _chance, intervals
from calgrid.statistics import paired_bootstrap

#: errors whose interval begins at 0 if chance alone explains them
ERRORS = ("ece", "rmsce", "u_ece", "aece_eq", "ece_sweep", "ks", "smce", "smece", "cece")
MEANS = ("accuracy", "top5", "nll", "brier", "aurc")


def test_chance_errors_have_the_law_of_all_labels():
    """Five samples have 243 vectors of labels, each with its probability."""
    probs, labels = calibrated(5, k=3, seed=3, sharpness=1.0)
    case = metrics.check_probabilities(probs, labels)
    drawn = _chance.chance_errors(case, 4, 2000, 0)
    vectors = np.array(list(itertools.product(range(3), repeat=5)))
    law = probs[np.arange(5), vectors].prod(axis=1)
    assert law.sum() == pytest.approx(1)
    for name in (*ERRORS, "o_ece", "aece", "mce", "brier_calibration"):
        values = np.array([getattr(metrics, name)(probs, vector, 4) for vector in vectors])
        mean = law @ values
        deviation = np.sqrt(law @ (values - mean) ** 2)
        assert abs(drawn[name].mean() - mean) < 4 * deviation / np.sqrt(2000), name
        assert drawn[name].std() == pytest.approx(deviation, rel=0.1), name
        median = (drawn[name][:, None] <= values + 1e-6).mean(axis=0) @ law
        assert median == pytest.approx((values[:, None] <= values + 1e-6).T @ law @ law, abs=0.03)


@pytest.mark.parametrize("by", ["ts", "iso"])
def test_chance_errors_along_directions_have_their_variance(by):
    probs, labels = calibrated(100)
    case = metrics.check_probabilities(probs, labels)
    drawn = _chance.chance_errors(case, 15, 2000, 0)
    for p, direction in metrics.recalibration.directions(case, by).items():
        mean = (probs * direction).sum(axis=1)
        variance = (probs * direction**2).sum(axis=1) - mean**2
        deviation = np.sqrt(variance.sum()) / 100
        assert abs(drawn[f"l{p}_{by}"].mean()) < 4 * deviation / np.sqrt(2000)
        assert drawn[f"l{p}_{by}"].std() == pytest.approx(deviation, rel=0.08)


def test_chance_errors_depend_on_seed_and_size_alone(monkeypatch):
    """Not on the size of blocks either; networks of one test set have common draws."""
    case = metrics.check_probabilities(*calibrated(50))
    first = _chance.chance_errors(case, 15, 20, 1)
    assert not np.array_equal(_chance.chance_errors(case, 15, 20, 2)["ece"], first["ece"])
    blocks = [slice(0, 7), slice(7, 30), slice(30, 50)]
    monkeypatch.setattr(_chance, "row_blocks", lambda n, k: blocks)
    for name, again in _chance.chance_errors(case, 15, 20, 1).items():
        np.testing.assert_allclose(again, first[name], atol=1e-12)


@pytest.mark.parametrize(("confidence", "excludes"), [(0.97, False), (0.8, True)])
def test_few_errors_exclude_zero_only_where_they_are_improbable(confidence, excludes):
    """At most 5 of 200 samples have the probability 44 % at 0.97, and none at 0.8."""
    assert (stats.binom.cdf(5, 200, 1 - confidence) < 0.025) == excludes
    spread = np.linspace(-0.005, 0.005, 200)
    case = with_confidence(confidence + spread, np.arange(200) % 40 > 0, n_classes=3)
    found = metrics.bootstrap(*case, n_resamples=200)
    named = (*ERRORS, "squared_ce", "l1_ts", "l1_iso", "l2_ts", "l2_iso", "brier_calibration")
    assert {name for name in named if found[name][0] > 0} == (set(named) if excludes else set())


def test_few_intervals_of_accurate_calibrated_models_exclude_zero():
    """A nominal share of 2.5 %; it was 13 to 40 % before."""
    rng, excluded = np.random.default_rng(0), []
    for seed in range(40):
        confidence = rng.uniform(0.9, 0.98, 200)
        case = with_confidence(confidence, rng.random(200) < confidence, n_classes=2)
        found = metrics.bootstrap(*case, n_resamples=60, seed=seed)
        excluded.append([found[name][0] > 0 for name in (*ERRORS, "squared_ce", "aece", "o_ece")])
    assert np.mean(excluded, axis=0).max() <= 3 / 40


@pytest.mark.parametrize(("right", "n"), [(20, 20), (0, 20), (19, 20), (45, 50), (9_990, 10_000)])
def test_the_interval_of_the_accuracy_is_exact(right, n):
    case = with_confidence(np.full(n, 0.9), np.arange(n) < right, n_classes=6)
    low, high = metrics.bootstrap(*case, n_resamples=9, level=0.9)["accuracy"]
    exact = stats.binomtest(right, n).proportion_ci(0.9, method="exact")
    assert (low, high) == pytest.approx((exact.low, exact.high))


def added_rows(probs, labels, n_resamples, seed):
    """Rows (R, 4) of right predictions, in proportion to their doubt, by their confidence."""
    numbers = np.random.default_rng([seed, 2]).random((n_resamples, 4))
    order = np.argsort(probs.max(axis=1))
    doubt = ((1 - probs.max(axis=1)) * (probs.argmax(axis=1) == labels))[order]
    return order[(numbers[:, :, None] >= np.cumsum(doubt / doubt.sum())).sum(axis=2)]


def test_every_second_resample_has_four_more_errors():
    """Right predictions, whose label becomes the most probable other class."""
    probs, labels = calibrated(80)
    rows = added_rows(probs, labels, 10, 7)
    drawn = intervals.resampled(probs, labels, n_resamples=10, seed=7).drawn
    plain = metrics.evaluate(probs, labels)
    weight = 1 - (probs.argmax(axis=1) != labels).sum() / 50
    weights = np.concatenate(list(intervals.resample_weights(80, 10, 7)))
    for r, counts in enumerate(weights.astype(int)):
        resample = np.repeat(np.arange(80), counts)
        without = metrics.evaluate(probs[resample], labels[resample])
        change = dict.fromkeys(MEANS, 0.0)
        for row in rows[r] if r % 2 else ():
            other = labels.copy()
            other[row] = np.argsort(-probs[row])[1]
            changed = metrics.evaluate(probs, other)
            for name in MEANS:
                change[name] += changed[name] - plain[name]
        assert change["accuracy"] == pytest.approx(-0.05 * (r % 2))
        for name in MEANS:
            expected = without[name] + weight * change[name]
            assert drawn[name][r] == pytest.approx(expected, abs=1e-12)


def test_added_errors_of_equal_classes_change_both_accuracies_alike():
    labels = np.arange(200) % 2
    probs = np.where(np.eye(2)[labels] == 1, 0.99, 0.01)
    drawn = intervals.resampled(probs, labels, n_resamples=10).drawn
    assert drawn["accuracy"][1::2] == pytest.approx(1 - 4 / 200)
    np.testing.assert_allclose(drawn["balanced_accuracy"], drawn["accuracy"], atol=1e-12)


def test_added_errors_change_the_squared_error_as_labels_do():
    """One flipped label, and the product of two in one bin beyond the sum of both."""
    probs, labels = calibrated(60, k=2)
    case = metrics.check_probabilities(probs, labels)
    changes, pairs = _chance.added_errors(case, 15, 40, 3)
    rows = added_rows(probs, labels, 40, 3)
    plain = metrics.squared_ce(probs, labels)
    weight = 1 - (probs.argmax(axis=1) != labels).sum() / 50
    assert 0.5 < weight < 1
    for r in range(1, 40, 2):
        alone = [flipped(probs, labels, [row]) - plain for row in rows[r]]
        assert changes["squared_ce"][r] == pytest.approx(weight * sum(alone), abs=1e-12)
        if len(set(rows[r])) == 4:
            products = flipped(probs, labels, rows[r]) - plain - sum(alone)
            assert pairs[r] == pytest.approx(weight**2 * products, abs=1e-12)
    assert not pairs[::2].any()
    assert not changes["nll"][::2].any()


def flipped(probs, labels, rows):
    other = labels.copy()
    other[rows] = 1 - labels[rows]
    return metrics.squared_ce(probs, other)


@pytest.mark.parametrize("right", [0, 1])
def test_a_model_without_doubt_may_err_anywhere(right):
    """Nothing is added where all predictions are wrong: labels that become right are no errors."""
    probs = np.eye(3)[np.zeros(20, int)]
    case = metrics.check_probabilities(probs, np.full(20, 1 - right))
    changes, pairs = _chance.added_errors(case, 15, 8, 0)
    np.testing.assert_allclose(changes.get("accuracy", np.zeros(8)), [0, -0.2 * right] * 4)
    # the square of four errors among twenty samples, without that of each
    np.testing.assert_allclose(pairs, [0, right * (16 - 4) / 19 / 20] * 4)


def test_a_further_error_among_ties_has_their_mean_share_of_the_aurc():
    none, one = (with_confidence(np.full(20, 0.7), np.arange(20) >= k) for k in (0, 1))
    changes, _ = _chance.added_errors(metrics.check_probabilities(*none), 15, 4, 0)
    expected = 4 * (metrics.aurc(*one) - metrics.aurc(*none))
    np.testing.assert_allclose(changes["aurc"], [0, expected] * 2)


def test_nothing_is_added_to_fifty_errors():
    """Then every resample is what it scores, as on even places with fewer errors."""
    case = with_confidence(np.linspace(0.5, 0.9, 200), np.arange(200) >= 50)
    assert _chance.added_errors(metrics.check_probabilities(*case), 15, 8, 0)[0] == {}
    case = with_confidence(np.linspace(0.5, 0.9, 200), np.arange(200) >= 40)
    changes, _ = _chance.added_errors(metrics.check_probabilities(*case), 15, 8, 0)
    np.testing.assert_allclose(changes["accuracy"], [0, -0.2 * 4 / 200] * 4)


@pytest.mark.parametrize("seeds", [1, 3])
def test_networks_without_an_error_have_no_verdict_that_one_error_would_turn(seeds):
    rng, runs = np.random.default_rng(0), {}
    for name, (low, high) in {"a": (0.98, 0.999), "b": (0.985, 0.9995)}.items():
        runs[name] = [with_confidence(rng.uniform(low, high, 200), 1, 2)[0] for _ in range(seeds)]
    labels = np.zeros(200, int)
    names = ("accuracy", "nll", "brier", "nll_refinement", "squared_ce", "nll_calibration")
    found = paired_bootstrap(runs, labels, metrics=names, n_resamples=200, of_runs=True)
    found = found.set_index("metric")
    assert set(found.loc[list(names[:4]), "verdict"]) <= {"tie", "equivalent"}
    assert (found.loc[list(names[:4]), "p_value"] > 0.3).all()
    assert set(found.loc[list(names[4:]), "verdict"]) == {"no verdict"}


@pytest.mark.parametrize(
    ("name", "errors", "known"),
    [
        *(("auroc_failure", 19, False), ("auroc_failure", 20, True), ("auroc_failure", 181, False)),
        *(("nll_calibration", 19, False), ("nll_calibration", 20, True)),
        *((name, 4, False) for name in ("squared_ce", "ece", "o_ece", "cece")),
        *((name, 5, True) for name in ("squared_ce", "ece", "o_ece", "cece")),
        ("squared_ce", 196, False),
    ],
)
def test_few_errors_give_neither_interval_nor_verdict(name, errors, known):
    confidence = np.linspace(0.6, 0.99, 200)
    wrong = np.isin(np.arange(200), np.arange(0, 2 * errors, 2) % 199)
    probs, labels = with_confidence(confidence, ~wrong, n_classes=10)
    assert 200 - (probs.argmax(axis=1) == labels).sum() == errors
    bounds = metrics.bootstrap(probs, labels, n_resamples=50)
    other = with_confidence(confidence[::-1], ~wrong, n_classes=10)[0]
    rows = paired_bootstrap(
        {"a": [probs], "b": [other]}, labels, metrics=[name, "nll"], n_resamples=50, of_runs=True
    ).set_index("metric")
    assert np.isfinite(bounds[name]).all() == known
    assert (rows.loc[name, "verdict"] != "no verdict") == known
    assert np.isfinite(bounds["nll"]).all()


@pytest.mark.parametrize(("n_classes", "known"), [(10, True), (11, False)])
def test_few_samples_a_class_give_no_interval_of_the_classwise_error(n_classes, known):
    confidence = np.linspace(0.6, 0.99, 200)
    sample = with_confidence(confidence, np.arange(200) % 7 > 0, n_classes)
    bounds = metrics.bootstrap(*sample, n_resamples=50)
    assert np.isfinite(bounds["cece"]).all() == known
    assert np.isfinite(bounds["ece"]).all()


def test_one_network_with_too_few_errors_leaves_no_interval_of_the_difference():
    """Not of the metric with fewer resamples, either."""
    labels, confidence = np.arange(200) % 2, np.linspace(0.6, 0.95, 200)
    models = []
    for wrong in (2, 60):
        top = np.where(np.arange(200) % 67 < wrong // 3 + 1, 1 - labels, labels)
        of_class_1 = np.where(top == 1, confidence, 1 - confidence)
        models.append(np.column_stack([1 - of_class_1, of_class_1]))
    found = intervals.bootstrap_difference(*models, labels, n_resamples=210)
    assert np.isnan(found["smce"]).all()
    assert np.isfinite(found["nll"]).all()
