"""Bootstrap over samples: weighted sums give what scoring each resample would give."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.metrics.cases import calibrated, predictions, softmax

from calgrid import metrics
from calgrid.errors import ConfigError
from calgrid.metrics import intervals

PERCENTILE = ("accuracy", "nll", "brier")
BASIC = ("ece", "ece_debiased", "aece", "cece", "mce", "o_ece", "u_ece")


def weights(n, n_resamples, seed=0, stream=0):
    return np.concatenate(list(intervals.resample_weights(n, n_resamples, seed, stream=stream))).astype(int)


@given(predictions(), st.sampled_from([1, 4, 15]))
@settings(deadline=None, max_examples=40)
def test_resampled_metrics_equal_the_metrics_of_the_resampled_rows(case, n_bins):
    probs, labels = case
    found = metrics.resampled_metrics(probs, labels, n_resamples=4, seed=5, n_bins=n_bins)
    assert sorted(found) == sorted(PERCENTILE + BASIC)
    for r, counts in enumerate(weights(len(labels), 4, seed=5)):
        rows = np.repeat(np.arange(len(labels)), counts)
        expected = metrics.evaluate(probs[rows], labels[rows], n_bins=n_bins)
        assert {name: values[r] for name, values in found.items()} == pytest.approx(
            {name: expected[name] for name in found}, abs=1e-12
        )


def test_resampled_out_of_distribution_metrics_equal_those_of_the_resampled_rows():
    probs_id, probs_ood = np.round(calibrated(40)[0], 1), np.round(calibrated(25, seed=1, sharpness=1)[0], 1)
    probs_id, probs_ood = (p / p.sum(axis=1, keepdims=True) for p in (probs_id, probs_ood))  # with ties
    draws = [
        metrics.evaluate_ood(np.repeat(probs_id, a, axis=0), np.repeat(probs_ood, b, axis=0))
        for a, b in zip(weights(40, 60), weights(25, 60, stream=1), strict=True)
    ]
    found = metrics.bootstrap_ood(probs_id, probs_ood, n_resamples=60, level=0.9)
    for name, interval in found.items():
        assert interval == pytest.approx(np.quantile([draw[name] for draw in draws], [0.05, 0.95]), abs=1e-12)


def test_every_resample_draws_n_samples_whatever_the_blocks(monkeypatch):
    whole = weights(37, 50)
    assert (whole.sum(axis=1) == 37).all()
    monkeypatch.setattr(intervals, "BLOCK_ENTRIES", 1)
    monkeypatch.setattr(intervals, "MIN_ROWS", 7)
    np.testing.assert_array_equal(weights(37, 50), whole)


def test_resamples_depend_on_seed_and_size_alone():
    case = calibrated(60)
    first = metrics.bootstrap(*case, n_resamples=50, seed=1)
    assert metrics.bootstrap(*case, n_resamples=50, seed=1)["ece"] == first["ece"]
    assert metrics.bootstrap(*case, n_resamples=50, seed=2)["ece"] != first["ece"]
    assert not np.array_equal(weights(60, 5), weights(60, 5, stream=1))


@pytest.mark.parametrize("name", PERCENTILE)
def test_percentile_intervals(name):
    case = calibrated(80)
    draws = metrics.resampled_metrics(*case, n_resamples=300)[name]
    interval = metrics.bootstrap(*case, n_resamples=300, level=0.8)[name]
    assert interval == pytest.approx(np.quantile(draws, [0.1, 0.9]))


@pytest.mark.parametrize("name", BASIC)
def test_basic_intervals_are_reflected_and_cut_off_at_zero(name):
    case = calibrated(80)
    value = getattr(metrics, name)(*case)
    low, high = np.quantile(metrics.resampled_metrics(*case, n_resamples=300)[name], [0.025, 0.975])
    interval = metrics.bootstrap(*case, n_resamples=300)[name]
    assert interval == pytest.approx((max(0, 2 * value - high), max(0, 2 * value - low)))


def test_every_metric_has_an_entry_and_nan_stands_for_no_interval():
    found = metrics.bootstrap(*calibrated(50), n_resamples=20)
    labelled = [name for name, metric in metrics.METRICS.items() if metric.kind == "labelled"]
    assert list(found) == labelled
    assert {name for name, (low, high) in found.items() if np.isnan(low) and np.isnan(high)} == {"ece_null", "smce"}
    assert all(low <= high for low, high in found.values() if not np.isnan(low))


def test_a_single_sample_has_no_interval():
    probs = np.array([[0.7, 0.3]])
    assert np.isnan(list(metrics.bootstrap(probs, [0], n_resamples=5).values())).all()
    assert np.isnan(list(metrics.bootstrap_ood(probs, probs, n_resamples=5).values())).all()
    assert np.isnan(list(metrics.bootstrap_difference(probs, probs, [0], n_resamples=5).values())).all()


@pytest.mark.parametrize(("sharpening", "names"), [(1, ("accuracy", "nll", "ece_debiased")), (3, ("accuracy", "ece"))])
def test_intervals_cover_the_truth(sharpening, names):
    """120 test sets: 95 % intervals should cover about 114 times. The true ECE of a calibrated model is 0."""

    def sample(n, seed):
        probs, labels = calibrated(n, seed=seed)
        return softmax(sharpening * np.log(probs)), labels

    truth = metrics.evaluate(*sample(100000, seed=1000))
    truth |= {"ece_debiased": 0.0} if sharpening == 1 else {}
    intervals_found = [metrics.bootstrap(*sample(300, seed), n_resamples=200, seed=seed) for seed in range(120)]
    for name in names:
        covered = sum(found[name][0] <= truth[name] <= found[name][1] for found in intervals_found)
        assert covered >= 102, name


def test_basic_interval_of_a_badly_calibrated_model_excludes_zero():
    probs, labels = calibrated(2000)
    sharpened = softmax(4 * np.log(probs))
    low, high = metrics.bootstrap(sharpened, labels, n_resamples=200)["ece"]
    assert 0.05 < low < metrics.ece(sharpened, labels) < high + 0.02


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
    assert found["brier"] == found["cece"] == (0, 0)
    assert np.isnan(found["smce"]).all()


@pytest.mark.parametrize(("option", "value"), [("level", 0.0), ("level", 1.0), ("n_resamples", 0), ("n_bins", 0)])
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        metrics.bootstrap(*calibrated(10), **{"n_resamples": 3, option: value})


def test_basic_intervals_stay_within_the_range_of_an_error():
    """One far-off prediction in a bin of its own: the reflected quantile of MCE would lie above 1."""
    rng = np.random.default_rng(0)
    confidence = np.r_[np.full(300, 0.97), 0.55]
    probs = np.c_[confidence, 1 - confidence]
    labels = np.r_[rng.random(300) > 0.97, True].astype(int)
    for low, high in (
        metrics.bootstrap(probs, labels, n_resamples=200)[name] for name in ("ece", "mce", "aece", "cece")
    ):
        assert 0 <= low <= high <= 1
