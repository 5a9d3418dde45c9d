"""Bootstrap over samples: weighted sums give what scoring each resample would give."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.cases import calibrated, predictions, softmax, with_confidence

from calgrid import metrics
from calgrid.errors import ConfigError
from calgrid.metrics import _estimators, binning, intervals, smooth

LABELLED = [metric for metric in metrics.METRICS.values() if metric.kind == "labelled"]
PERCENTILE, SKEWED, BINOMIAL, CENTRED, UNBIASED = (
    tuple(metric.id for metric in LABELLED if metric.interval == kind)
    for kind in ("percentile", "skewed", "binomial", "centred", "unbiased")
)
#: need errors
SEPARATION = {"auroc_failure", "aupr_failure", "fpr95_failure"}
#: resamples have their change to first order
LINEAR = {*UNBIASED, "balanced_accuracy", "macro_auroc", "l1_ts", "l1_iso", "l2_ts", "l2_iso"}
GUARDED = tuple(
    metric.id for metric in LABELLED if metric.interval == "guarded" and not metric.interval_of
)
DEBIASED = ("ece_debiased", "rmsce_debiased")
#: from sums in single precision
SINGLE = {"cece", "brier_calibration", "brier_refinement"}


def weights(n, n_resamples, seed=0, stream=0):
    return np.concatenate(
        list(intervals.resample_weights(n, n_resamples, seed, stream=stream))
    ).astype(int)


@given(predictions(), st.sampled_from([1, 4, 15]))
@settings(deadline=None, max_examples=20)
def test_resampled_metrics_equal_the_metrics_of_the_resampled_rows(case, n_bins):
    probs, labels = case
    found = intervals.resampled(probs, labels, n_resamples=7, seed=5, n_bins=n_bins).drawn
    kinds = (*PERCENTILE, *SKEWED, *BINOMIAL, *CENTRED, *UNBIASED)
    assert sorted(found) == sorted((*kinds, *DEBIASED, *GUARDED, "mce", "brier_refinement"))
    left_out = LINEAR | SEPARATION
    found = {
        name: draws
        for name, draws in found.items()
        if name not in left_out and not np.isnan(draws).all()
    }
    # others have further errors, see test_rare_errors.py
    for r, counts in list(enumerate(weights(len(labels), 7, seed=5)))[::2]:
        rows = np.repeat(np.arange(len(labels)), counts)
        expected = metrics.evaluate(probs[rows], labels[rows], n_bins=n_bins)
        for names, rounding in ((found.keys() - SINGLE, 1e-12), (found.keys() & SINGLE, 1e-6)):
            assert {name: found[name][r] for name in names} == pytest.approx(
                {name: expected[name] for name in names}, abs=rounding, nan_ok=True
            )


def test_resampled_separation_of_errors_is_that_of_the_resampled_rows():
    probs, labels = calibrated(200)
    found = intervals.resampled(probs, labels, n_resamples=5).drawn
    for r, counts in enumerate(weights(200, 5)):
        rows = np.repeat(np.arange(200), counts)
        for name in SEPARATION:
            expected = getattr(metrics, name)(probs[rows], labels[rows])
            assert found[name][r] == pytest.approx(expected, abs=1e-12)


def test_resampled_out_of_distribution_metrics_equal_those_of_the_resampled_rows():
    rounded = [np.round(calibrated(n, seed=seed)[0], 1) for n, seed in ((40, 0), (25, 1))]
    probs_id, probs_ood = (p / p.sum(axis=1, keepdims=True) for p in rounded)  # with ties
    draws = [
        metrics.evaluate_ood(np.repeat(probs_id, a, axis=0), np.repeat(probs_ood, b, axis=0))
        for a, b in zip(weights(40, 60), weights(25, 60, stream=1), strict=True)
    ]
    found = metrics.bootstrap_ood(probs_id, probs_ood, n_resamples=60, level=0.9)
    for name, interval in found.items():
        assert interval == pytest.approx(
            np.quantile([draw[name] for draw in draws], [0.05, 0.95], method="weibull"), abs=1e-12
        )


def test_quantiles_leave_what_they_promise_beyond_them():
    """Of 199 draws the fifth: five of the 200 places that the next draw may take lie below it."""
    low, high = intervals.quantiles(np.random.default_rng(0).permutation(199) + 1.0, (0.025, 0.975))
    assert (low, high) == (pytest.approx(5), pytest.approx(195))


def test_every_resample_draws_n_samples_whatever_the_blocks(monkeypatch):
    whole = weights(37, 50)
    assert (whole.sum(axis=1) == 37).all()
    monkeypatch.setattr(_estimators, "BLOCK_ENTRIES", 1)
    monkeypatch.setattr(_estimators, "MIN_ROWS", 7)
    np.testing.assert_array_equal(weights(37, 50), whole)


def test_resamples_depend_on_seed_and_size_alone():
    case = calibrated(60)
    first = metrics.bootstrap(*case, n_resamples=50, seed=1)
    np.testing.assert_array_equal(
        list(metrics.bootstrap(*case, n_resamples=50, seed=1).values()), list(first.values())
    )
    assert metrics.bootstrap(*case, n_resamples=50, seed=2)["nll"] != first["nll"]
    assert not np.array_equal(weights(60, 5), weights(60, 5, stream=1))


def test_percentile_intervals():
    case = calibrated(200)
    draws = intervals.resampled(*case, n_resamples=300).drawn
    found = metrics.bootstrap(*case, n_resamples=300, level=0.8)
    for name in {*PERCENTILE} - intervals.TOO_HIGH:
        assert found[name] == pytest.approx(intervals.quantiles(draws[name], [0.1, 0.9])), name


def test_resamples_in_which_a_metric_does_not_exist_are_left_out():
    """One error among forty: more than a third of the resamples have none."""
    probs, labels = with_confidence(np.linspace(0.5, 0.9, 40), [0] + [1] * 39)
    of_errors = metrics.Metric(
        "of_errors",
        lambda probs, labels, n_bins: np.nan if probs.correct.all() else 1.0,
        "",
        "",
        None,
        "labelled",
    )
    options = {"n_resamples": 100, "further": [of_errors]}
    drawn = intervals.resampled(probs, labels, **options).drawn["of_errors"]
    without = weights(40, 100)[:, 0] == 0
    np.testing.assert_array_equal(drawn, np.where(without, np.nan, 1.0))
    assert 20 < without.sum() < 60
    assert metrics.bootstrap(probs, labels, **options)["of_errors"] == (1, 1)
    assert np.isnan(metrics.bootstrap(probs[1:], labels[1:], **options)["of_errors"]).all()


def test_debiased_errors_have_the_interval_of_the_plain_ones():
    """They estimate the same quantity; a reflected interval held 0 in 88 to 93 % of test sets."""
    probs, labels = calibrated(80)
    other = softmax(1.5 * np.log(probs))
    single = metrics.bootstrap(probs, labels, n_resamples=50)
    paired = metrics.bootstrap_difference(probs, other, labels, n_resamples=50)
    for name in DEBIASED:
        plain = name.removesuffix("_debiased")
        assert single[name] == single[plain]
        assert paired[name] == paired[plain]


def test_centred_intervals_are_reflected_about_the_mean_of_the_resamples():
    probs, labels = calibrated(80)
    case = softmax(4 * np.log(probs)), labels  # chance does not explain an error as large
    draws = intervals.resampled(*case, n_resamples=300).drawn
    found = metrics.bootstrap(*case, n_resamples=300)
    for name in CENTRED:
        low, high = intervals.quantiles(draws[name] - draws[name].mean(), [0.025, 0.975])
        value = getattr(metrics, name)(*case)
        expected = min(max(value - high, 0), value), value - low
        assert found[name] == pytest.approx(expected), name


def test_intervals_contain_their_estimate_and_zero_where_it_is_negative():
    negative = set()
    for seed in range(5):
        case = calibrated(200, seed=seed)
        values = metrics.evaluate(*case, n_bins=2)
        for name, (low, high) in metrics.bootstrap(*case, n_resamples=40, n_bins=2).items():
            if name in (*CENTRED, *UNBIASED, *DEBIASED):
                assert low <= values[name] <= high
            if values[name] < 0:
                negative.add(name)
                assert low == values[name]
                assert high >= 0
    assert negative >= {"squared_ce", "ece_debiased", "nll_calibration", "brier_calibration"}


@functools.cache
def interval_and_value(sharpening):
    """Of all metrics on a calibrated or an overconfident model."""
    probs, labels = calibrated(1000)
    case = softmax(sharpening * np.log(probs)), labels
    return metrics.bootstrap(*case, n_resamples=200), metrics.evaluate(*case)


@pytest.mark.parametrize("name", GUARDED)
def test_guarded_intervals_hold_their_value_and_reach_zero_where_chance_explains_it(name):
    intervals_found, values = interval_and_value(1)
    low, high = intervals_found[name]
    assert low == 0
    assert high >= values[name]
    intervals_found, values = interval_and_value(6)
    low, high = intervals_found[name]
    assert low <= values[name] <= high <= 1
    if name not in ("mce", "u_ece"):  # bins of few samples, and no underconfidence to find
        assert low > 0


def test_the_parts_of_the_ece_end_no_higher_than_the_ece():
    for probs, labels in (calibrated(60), with_confidence([0.8] * 40, [0] * 20 + [1] * 20)):
        found = metrics.bootstrap(probs, labels, n_resamples=60)
        values = metrics.evaluate(probs, labels)
        assert values["o_ece"] + values["u_ece"] == pytest.approx(values["ece"])
        for part in ("o_ece", "u_ece"):
            assert values[part] <= found[part][1] <= found["ece"][1]


def test_the_guard_is_what_resampling_adds_to_the_gaps_of_the_bins():
    """With its sign in bins whose gap chance cannot explain, and at its size in the others."""
    probs, labels = calibrated(2000)
    wrong = softmax(4 * np.log(probs))
    confidence, residual = wrong.max(axis=1), wrong.max(axis=1) - (wrong.argmax(axis=1) == labels)
    member = (
        np.searchsorted(np.linspace(0, 1, 16)[1:-1], confidence)[:, None] == np.arange(15)
    ).astype(float)
    gap, added = residual @ member, (weights(2000, 300) - 1) @ (member * residual[:, None])
    near = np.abs(gap) <= 3 * np.sqrt(residual**2 @ member)
    assert 0 < near[member.any(axis=0)].sum() < member.any(axis=0).sum()
    noise = (np.abs(np.where(near, 0, gap) + added) - np.where(near, 0, np.abs(gap))).sum(
        axis=1
    ) / 2000
    draws = intervals.resampled(wrong, labels, n_resamples=300).drawn["ece"]
    value = metrics.ece(wrong, labels)
    expected = (
        value - intervals.quantiles(noise, 0.975),
        value + draws.mean() - intervals.quantiles(draws, 0.025),
    )
    assert metrics.bootstrap(wrong, labels, n_resamples=300)["ece"] == pytest.approx(expected)


def test_squares_of_the_bins_of_classes():
    probs, labels = calibrated(300)
    seen = binning.ClasswiseBins(metrics.check_probabilities(probs, labels), 15).squares()
    for k, (p, y) in enumerate(zip(probs.T, np.eye(5)[labels].T, strict=True)):
        index = np.searchsorted(np.linspace(0, 1, 16)[1:-1], p)
        np.testing.assert_allclose(seen[k], np.bincount(index, (p - y) ** 2, 15), atol=1e-12)


def test_every_metric_has_an_entry_and_nan_stands_for_no_interval():
    found = metrics.bootstrap(*calibrated(200), n_resamples=20)
    assert list(found) == [metric.id for metric in LABELLED]
    assert {name for name, (low, high) in found.items() if np.isnan(low) and np.isnan(high)} == {
        "brier_refinement",
        "ece_null",
        "mce",
    }
    assert all(low <= high for low, high in found.values() if not np.isnan(low))


def test_a_single_sample_has_no_interval():
    probs = np.array([[0.7, 0.3]])
    for found in (
        metrics.bootstrap(probs, [0], n_resamples=5),
        metrics.bootstrap_ood(probs, probs, n_resamples=5),
        metrics.bootstrap_soft(probs, probs, n_resamples=5),
        metrics.bootstrap_difference(probs, probs, [0], n_resamples=5),
    ):
        assert np.isnan(list(found.values())).all()


def test_paired_difference_is_narrower_than_the_interval_of_either_model():
    probs, labels = calibrated(500)
    other = softmax(1.1 * np.log(probs))
    low, high = metrics.bootstrap_difference(probs, other, labels, n_resamples=300)["nll"]
    alone = metrics.bootstrap(probs, labels, n_resamples=300)["nll"]
    assert low < metrics.nll(probs, labels) - metrics.nll(other, labels) < high
    assert high - low < (alone[1] - alone[0]) / 2


def test_a_model_does_not_differ_from_itself():
    probs, labels = calibrated(60)
    found = metrics.bootstrap_difference(probs, probs, labels, n_resamples=30)
    assert set(found) >= {*PERCENTILE, *SKEWED, *BINOMIAL, *CENTRED, *GUARDED, *DEBIASED, *UNBIASED}
    assert {ends for ends in found.values() if not np.isnan(ends[0])} == {(0, 0)}


def test_the_linear_part_of_squared_ce_is_its_derivative():
    """By weights near 1, which stand for parts of samples."""
    case, step = calibrated(500), 1e-6
    bins = binning.residual_bins(metrics.check_probabilities(*case), 15)

    def weighted(w):
        count, sums = (np.bincount(bins.place, w * each, 15) for each in (1, bins.residual))
        square = np.bincount(bins.place, w**2 * bins.residual**2, 15)
        return ((sums**2 - square) / np.maximum(count - 1, 1)).sum() / 500

    draws = intervals.resampled(*case, n_resamples=9).drawn["squared_ce"]
    # others have further errors
    for drawn, counts in zip(draws[::2], weights(500, 9)[::2], strict=True):
        change = (weighted(1 + step * (counts - 1)) - weighted(np.ones(500))) / step
        assert drawn == pytest.approx(metrics.squared_ce(*case) + change, abs=1e-7)


@pytest.mark.parametrize("sharpening", [1, 1.5], ids=["calibrated", "overconfident"])
def test_the_standard_error_of_squared_ce_is_its_deviation_over_test_sets(sharpening):
    """A plain bootstrap of a calibrated model gives up to 1.7 times the deviation."""
    probs, labels = calibrated(500 * 300)
    probs = softmax(sharpening * np.log(probs))
    sets = [(probs[i::300], labels[i::300]) for i in range(300)]
    resamples = [intervals.resampled_means(*case, n_resamples=60) for case in sets[:60]]
    variances = [
        intervals.sampling_variance(each.drawn["squared_ce"], each.noise["squared_ce"])
        for each in resamples
    ]
    deviation = np.std([metrics.squared_ce(*case) for case in sets])
    assert np.sqrt(np.mean(variances)) == pytest.approx(deviation, rel=0.2)


def test_the_smooth_error_has_fewer_resamples_which_are_the_first(monkeypatch):
    case = calibrated(30)
    whole = intervals.resampled(*case, n_resamples=40).drawn["smce"]
    monkeypatch.setattr(intervals, "SMOOTH_RESAMPLES", 25)
    monkeypatch.setattr(intervals, "PRODUCT_BLOCK", 1)
    found = intervals.resampled(*case, n_resamples=40).drawn
    np.testing.assert_array_equal(found["smce"], whole[:25])
    assert len(found["smece"]) == 40


def test_resamples_of_the_smooth_error_may_merge_near_confidences(monkeypatch):
    case = calibrated(300)
    exact = intervals.resampled(*case, n_resamples=10).drawn["smce"]
    monkeypatch.setattr(smooth, "CELLS", 100)
    merged = intervals.resampled(*case, n_resamples=10).drawn["smce"]
    assert np.abs(merged - exact).max() <= 0.005
    assert not np.array_equal(merged, exact)


@pytest.mark.parametrize(
    ("option", "value"), [("level", 0.0), ("level", 1.0), ("n_resamples", 0), ("n_bins", 0)]
)
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        metrics.bootstrap(*calibrated(10), **{"n_resamples": 3, option: value})
